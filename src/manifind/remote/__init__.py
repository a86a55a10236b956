"""Collections in a vector database: each search fetches a shortlist of images and diffuses on it.

The paper's truncation (Sec. 4.4) makes the cost of a query independent of the size of the collection. `store` is the
contract that a store fulfils, `row_format` the row of an image, `publish` writes an index into a store, `collection`
searches it. Each store is one file.
"""
