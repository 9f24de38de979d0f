"""Selection of the values that are stored as float16 (``precision="float16"``)."""
