"""The meaning of the intermediate representation in numpy."""
