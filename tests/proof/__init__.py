"""What proves it: a model of the lease protocol with a checker of its own, and the page that names every test and run."""
