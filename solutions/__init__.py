"""The reference: the same modules as `tinyllm`, finished. The skeletons are derived from it."""
