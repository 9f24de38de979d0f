"""Views of the compiler's work: graphs after each pass, kernels, programs, reports, reproductions."""
