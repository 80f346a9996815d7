"""The training loop: what keeps a policy broad while it is trained, independent of any trainer (needs the extra ``train``)."""
