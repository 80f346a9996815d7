"""The real llama.cpp server as a process: prints its address, serves, and ends with the process that started it.

    python tests/llama_server.py MODEL.gguf [--thinking | --raw] [--threads N]

With ``--thinking`` the same model gets a chat template that opens a ``<think>`` block, so the server parses reasoning
and enforces thinking budgets as it does for a reasoning model (what stands in the block is as wise as the model).
With ``--raw`` messages are put one after the other as they are.

``BREADTH_TEST_ROPE_SCALE`` (say 0.95) stretches the positions that the model sees: it writes other texts then, as it
does on another processor, only more so. No test may depend on which.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib import import_module

SLOTS = 8
CONTEXT = 1024

THINKING = r"""
{%- for turn in messages %}
  {{- '<|im_start|>' + turn['role'] + '\n' }}
  {%- if turn['role'] == 'assistant' and turn['reasoning_content'] %}
    {{- '<think>\n' + turn['reasoning_content'] + '\n</think>\n\n' }}
  {%- endif %}
  {{- turn['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n' }}
  {%- if enable_thinking is defined and enable_thinking is false %}
    {{- '<think>\n\n</think>\n\n' }}
  {%- else %}
    {{- '<think>\n' }}
  {%- endif %}
{%- endif %}
"""


RAW = "{%- for turn in messages %}{{- turn['content'] }}{%- endfor %}"


def serve(model: str, template: str, threads: int) -> None:
    """Serve until the starting process is gone; a killed test run leaves no server behind."""
    parent = os.getppid()
    llama = import_module("xllamacpp")  # has no types
    parameters = llama.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {"smollm2"}
    parameters.n_parallel = SLOTS
    parameters.n_ctx = SLOTS * CONTEXT
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.cache_ram_mib = 0  # the prompt cache outside the slots would take gigabytes
    parameters.endpoint_metrics = parameters.endpoint_props = True
    parameters.rope_freq_scale = float(os.environ.get("BREADTH_TEST_ROPE_SCALE", "0"))  # 0: the model's own
    if template:
        parameters.chat_template = template
    server = llama.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)  # the server's own threads do not end by themselves


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("model")
    arguments.add_argument("--thinking", action="store_const", dest="template", const=THINKING, default="")
    arguments.add_argument("--raw", action="store_const", dest="template", const=RAW)
    arguments.add_argument("--threads", type=int, default=1)
    chosen = arguments.parse_args()
    serve(chosen.model, chosen.template, chosen.threads)
