"""One file an experiment; `breadth.lab.trials.experiment` lists them."""
