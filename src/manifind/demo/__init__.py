"""The whole thing on data that comes with it: planted scenes, synthetic collections, the paper's first figure."""
