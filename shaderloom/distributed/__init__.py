"""Models on many machines: what Ray's data sets, its servers, and ``shaderloom map --ray`` run on each of them."""
