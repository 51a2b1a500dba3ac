"""A course catalogue whose courses are exported to files and delivered elsewhere: the tutorial's worked example."""
