"""The intermediate representation: values, nodes, graphs, physical layouts, sources of constants."""
