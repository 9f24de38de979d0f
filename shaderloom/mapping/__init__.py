"""Map a model over files: rows of arrays, tables and folders of pictures to parts of a result that can be resumed."""
