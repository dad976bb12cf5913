"""Text forms of graphs and kernels, read back: for tests, tools and people; nothing between a model and its artifact asks them."""
