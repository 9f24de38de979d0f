"""Device memory: buffers, tensors, and the files that weights are uploaded from."""
