"""Legal configurations of kernels for a problem, and which of them a compilation takes."""
