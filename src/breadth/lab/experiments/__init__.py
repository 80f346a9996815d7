"""One file an experiment; `breadth.lab.experiment` lists them."""
