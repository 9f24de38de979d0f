"""Names of onnxruntime's Python API: options, bindings, providers, asynchronous runs."""
