"""Makes folders of ONNX decoders of other files: GGUF.

``gguf_file.py`` reads a file within bounds, ``block_weights.py`` repacks its weights, ``gguf_tokenizer.py`` writes its
tokenizer, ``decoder_writer.py`` the graph, and ``gguf_decoder.py`` puts them together.
"""
