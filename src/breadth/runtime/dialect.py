"""How OpenAI-compatible servers differ: one dialect per server, in ``adapters/<server>.py``.

The plain dialect below sends only fields of the OpenAI schema. A server's own dialect is a subclass that overrides the
differences: names of sampling fields, prefix continuation, the cap on thinking, the largest number of top log-probs,
and how the server is recognised from its own pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.base.catalogue import Catalogue
from breadth.base.errors import StrategyError
from breadth.inference.records import Sampling
from breadth.runtime.sampler import SampleRequest

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
SERVER_DIALECTS = Catalogue(
    "dialects",
    {
        "openai": "breadth.runtime.dialect:ServerDialect",
        "llama-cpp": "breadth.adapters.llama_cpp:LlamaCppDialect",
        "vllm": "breadth.adapters.vllm:VllmDialect",
        "sglang": "breadth.adapters.sglang:SglangDialect",
    },
)
"""Dialects by name."""


@dataclass(frozen=True)
class ServerIdentity:
    """A server's own pages about itself, fetched before a dialect is chosen."""

    models: Mapping[str, Any]
    """Body of ``/v1/models``."""
    headers: Mapping[str, str]
    """Headers of that reply, names in lower case."""
    props: Mapping[str, Any]
    """Bodies of well-known pages that exist, by path: ``/props``, ``/version``, ``/get_server_info``, ..."""


@dataclass(frozen=True)
class ServerDialect:
    """The plain OpenAI schema, which every server should understand."""

    catalogue: ClassVar[Catalogue] = SERVER_DIALECTS
    tested_live: ClassVar[bool] = False
    """Whether a real server of this kind has answered it in our tests."""
    offers: ClassVar[frozenset[str]] = frozenset({"logprobs", "confidences", "seed", "halt"})
    """What servers of this kind support; the probe finds out what a particular one does."""
    max_top_logprobs: ClassVar[int] = 20
    """Alternatives sent at most for each token, unless configured otherwise."""
    model_owner: ClassVar[str | None] = None
    """Owner that servers of this kind, and no others, give their models."""
    server_header: ClassVar[str | None] = None
    """How their header ``Server`` begins, in lower case."""
    own_setting: ClassVar[str | None] = None
    """A setting that only their pages about themselves have."""

    def recognises(self, identity: ServerIdentity) -> bool:
        """Say whether a server is of this kind. The plain dialect recognises none: it is the fallback."""
        models = identity.models.get("data")
        models = models if isinstance(models, list) else []
        owners = [model.get("owned_by") for model in models if isinstance(model, Mapping)]
        pages = [page for page in identity.props.values() if isinstance(page, Mapping)]
        owner, header, setting = self.model_owner, self.server_header, self.own_setting
        return (
            (owner is not None and owner in owners)
            or (header is not None and identity.headers.get("server", "").lower().startswith(header))
            or (setting is not None and any(setting in page for page in pages))
        )

    def fit_to(self, identity: ServerIdentity) -> ServerDialect:
        """Return the dialect adapted to this very server, by its own pages."""
        del identity
        return self

    def speculates(self, identity: ServerIdentity) -> bool | None:
        """Say whether the server decodes speculatively, which loosens caps and log-probs; None when unknown."""
        del identity
        return None

    def build_request(self, request: SampleRequest) -> tuple[str, dict[str, Any]]:
        """Return path and body of the streaming request for a sample."""
        body: dict[str, Any] = {
            "model": request.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "seed": request.seed,
        }
        body |= self.sampling_fields(request.sampling)
        path = COMPLETIONS_PATH if isinstance(request.prompt, str) else CHAT_PATH
        body |= self.logprob_fields(request.sampling.top_logprobs, path)
        body |= self.prompt_fields(request)
        body |= request.options
        if request.sampling.thinking_tokens is not None:  # behind the options, which must not lift a cap
            body |= self.thinking_fields(request.sampling.thinking_tokens)
        return path, body

    def sampling_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the sampling fields under the server's names, all of them explicit."""
        fields: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "max_tokens": sampling.max_tokens,
        }
        return fields | ({"stop": list(sampling.stop)} if sampling.stop else {})

    def thinking_fields(self, tokens: int) -> dict[str, Any]:
        """Return the fields that cap thinking."""
        del tokens
        raise StrategyError(
            "A cap on thinking tokens was asked for, but the plain OpenAI schema has no field for one.",
            "Choose the server's own dialect with --dialect, or use budget-forcing, which caps thinking from outside.",
        )

    def logprob_fields(self, top: int, path: str) -> dict[str, Any]:
        """Return the fields that request log-probs; none for ``top`` 0."""
        if top <= 0:
            return {}
        return {"logprobs": True, "top_logprobs": top} if path == CHAT_PATH else {"logprobs": top}

    def prompt_fields(self, request: SampleRequest) -> dict[str, Any]:
        """Return the prompt, with the prefix of the reply where one is given."""
        if isinstance(request.prompt, str):
            return {"prompt": request.prompt + request.prefix}
        if request.prefix:
            raise StrategyError(
                "The reply must continue a given prefix, but the plain OpenAI schema cannot do that in a chat.",
                "Choose the server's own dialect with --dialect (llama-cpp, vllm, sglang), or give the prompt as plain"
                " text.",
            )
        return {"messages": [dict(message) for message in request.prompt]}
