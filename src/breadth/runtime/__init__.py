"""The only package that awaits: the driver, the samplers, the ledger, the probe of a server and the proxy."""
