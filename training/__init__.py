"""Training a model of the course on the stories: `tinyllm train` and `tinyllm measure`."""
