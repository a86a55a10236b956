"""The long parts of an index build on Dask's workers, to the same result.

The process that builds an index (the driver) submits tasks, which exchange files (`exchange`). `tasks` are what workers
run on photos and vectors; `knn_builder` builds the graph: `block_design` divides it, `update_knn` updates it,
`mutual_graph` keeps mutual neighbours.
"""
