"""Which values in memory may be float16 (``precision="float16"``)."""
