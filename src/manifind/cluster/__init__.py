"""The same work on more than one machine: collections in a vector database, and indexes built by Dask's workers.

On line (`collection`), the paper's truncation makes the cost of a query independent of the size of the collection: a
store finds a shortlist of photos by descriptor and hands out their packed rows, and the process that answers builds and
solves the small system of the shortlist. `store` says what is asked of a store, `packing` what a photo's row holds,
`publishing` how an index comes into a store. Each store is one file.

Off line (`workers`), the process that makes an index hands out tasks, which exchange files (`shards`). `tasks` describe
photos and compare regions, `whitening` learns and applies a whitening, `rows` hands out the work on a graph, which
`planes` divides, `following` brings up to date, `joining` joins and `columns` solves.
"""
