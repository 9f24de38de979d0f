"""What a person looks at: graphs after each pass, kernels, programs, reports, reproductions."""
