"""What ``manifind evaluate`` does: reads, checks, and measures. How it is written is `manifind.evaluation.tables`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifind.checks import check_choice
from manifind.errors import InvalidInputError, MissingFileError
from manifind.evaluation.cache import Cache
from manifind.evaluation.comparison import (
    ALL_FIGURES,
    Comparison,
    check_descriptors,
    compare_methods,
    methods_of_the_paper,
    select_figures,
)
from manifind.evaluation.dataset import EvaluationSet, prepare
from manifind.evaluation.descriptors import DescriptorSet, is_descriptors, read_collection, read_names, read_queries
from manifind.evaluation.formats import read_truth
from manifind.evaluation.measures import DEFINITIONS
from manifind.evaluation.methods import ALL_METHODS, METHODS, MethodSpec, method_spec, parse, with_index_parameters
from manifind.evaluation.photos import IndexedPhotos, Photos
from manifind.evaluation.protocol import Protocol, name_lookup, preview
from manifind.evaluation.report import check_drawing, drawings, report
from manifind.evaluation.runner import Runner
from manifind.evaluation.tables import as_csv, as_json, as_markdown
from manifind.features import RegionExtractor
from manifind.index.storage.build_config import WhiteningTraining
from manifind.index.storage.layout import is_index
from manifind.types import StageProgress

Warn = Callable[[str], None]
PAPER = "paper"
PRESETS = (PAPER,)
INPUT_NAMES = {"photos": "photos", "index": "descriptors of an index"}


@dataclass(frozen=True)
class Request:
    """The options of ``manifind evaluate``."""

    collection: Path
    truths: Sequence[Path]
    queries: Sequence[Path] = ()
    names: Path | None = None
    distractors: Path | None = None
    methods: Sequence[str] = ()
    definition: str = "trapezoid"
    figures: Sequence[str] = ()
    preset: str | None = None
    """"paper": every row of the paper's tables and every figure that the data allow."""
    descriptors: str | None = None
    query_counts: bool = False
    cache: Path | None = None
    fresh: bool = False


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation measured, and where the photos are."""

    comparison: Comparison
    pictures: dict[str, bytes]
    find: Callable[[str], Path | None] | None

    def page(self) -> str:
        """Return the report."""
        return report(self.comparison, self.pictures, self.find)

    def write(self, folder: Path) -> list[Path]:
        """Write everything to a folder, and return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "results.json": as_json(self.comparison),
            "results.csv": as_csv(self.comparison),
            "report.md": as_markdown(self.comparison),
            "report.html": self.page(),
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name, png in self.pictures.items():
            (folder / f"figure-{name}.png").write_bytes(png)
        return [folder / name for name in [*texts, *(f"figure-{name}.png" for name in self.pictures)]]


def run(
    request: Request,
    extractor: Callable[[], tuple[RegionExtractor, WhiteningTraining | None]],
    progress: StageProgress = lambda *_: None,
    warn: Warn = lambda _: None,
) -> Evaluation:
    """Read a collection and its ground truths, run methods, and return what was measured.

    `extractor` is called for the extractor and the training of its whitening if the collection is a folder of photos;
    `warn` with a sentence about each thing that is left out, skipped or damaged.
    """
    check_choice(request.definition, DEFINITIONS, "definition")
    check_descriptors(request.descriptors)
    if request.preset is not None:
        check_choice(request.preset, PRESETS, "preset")
    figures = [*request.figures, *([ALL_FIGURES] if request.preset == PAPER and not request.figures else [])]
    if figures:
        check_drawing()
    for text in request.methods:  # a wrong name is an error before anything is read
        if text != ALL_METHODS:
            parse(text)
    if not request.truths:
        raise InvalidInputError("no ground truth was given; give one with --truth.", code="no-truth")
    cache = Cache(request.cache, warn)
    photos: Photos | None = None
    if is_descriptors(request.collection):
        data = _load_descriptors(request)
    else:
        if not request.collection.is_dir():
            raise MissingFileError(f"{request.collection} does not exist; give photos, an index, or descriptors.")
        if request.queries:
            raise InvalidInputError(
                "--queries is for descriptors; queries on photos are cut out of them as the truth says.",
                code="queries-of-photos",
            )
        if is_index(request.collection):
            photos = IndexedPhotos(request.collection, cache, progress, warn)
        else:
            network, learning = extractor()
            photos = Photos(request.collection, network, cache, progress, warn, learning=learning)
        data = _load_photos(request, photos)
    drawable, left_out = select_figures(figures, data)
    specs = _select_methods(request, data)
    for sentence in left_out:
        warn(sentence)
    for spec in specs:
        if not any(dataset.provides(spec.method.needs) for dataset in data):
            needed = INPUT_NAMES.get(spec.method.needs, f"{spec.method.needs} descriptors")
            warn(f"{spec.method.name} needs {needed}, which are not there; it is left out.")
    runner = Runner(cache, progress, warn, fresh=request.fresh)
    comparison = compare_methods(
        data, specs, runner, definition=request.definition, figures=drawable, descriptors=request.descriptors
    )
    return Evaluation(comparison, drawings(comparison), None if photos is None else photos.path_of)


def _select_methods(request: Request, data: Sequence[EvaluationSet]) -> list[MethodSpec]:
    """Return the methods: those that were named, the paper's, or all."""
    columns = [dataset.protocol.column(task) for dataset in data for task in dataset.protocol.tasks]
    texts = [*request.methods]
    if request.preset == PAPER:
        texts += methods_of_the_paper(columns)
    default = [method for method in METHODS.values() if method.in_all]
    if not any(dataset.provides("index") for dataset in data):
        default = [method for method in default if method.needs != "index"]
    specs: list[MethodSpec] = []
    for text in texts or [ALL_METHODS]:
        specs += [method_spec(method.name) for method in default] if text == ALL_METHODS else [parse(text)]
    index = next((dataset.index for dataset in data if dataset.index is not None), None)
    if index is not None:
        specs = [with_index_parameters(spec, index.manifold) for spec in specs]
    return list({spec.key: spec for spec in specs}.values())


def _load_descriptors(request: Request) -> list[EvaluationSet]:
    collection, stored_queries = read_collection(request.collection, request.names)
    if not request.queries and stored_queries is None:
        raise InvalidInputError(
            f"{request.collection} has no queries; give their descriptors with --queries, one for each --truth.",
            code="no-query-descriptors",
        )
    if request.queries and len(request.queries) != len(request.truths):
        raise InvalidInputError(
            f"{len(request.truths)} --truth and {len(request.queries)} --queries were given; give as many of each.",
            code="query-count",
        )
    protocols = [read_truth(path, collection.names, query_counts=request.query_counts) for path in request.truths]
    collection, protocols = _add_distractors(request, collection, protocols)
    data = []
    for i, protocol in enumerate(protocols):
        queries = read_queries(request.queries[i]) if request.queries else stored_queries
        assert queries is not None  # noqa: S101 (checked above)
        data.append(prepare(protocol, collection, queries))
    return data


def _load_photos(request: Request, photos: Photos) -> list[EvaluationSet]:
    def truths(names: Sequence[str]) -> list[Protocol]:
        return [photos.truth(path, names, query_counts=request.query_counts) for path in request.truths]

    protocols = truths(photos.names)
    extracted = [photos.extract_queries(protocol) for protocol in protocols]
    collection, sizes = photos.collection()
    assert collection.names is not None  # noqa: S101 (photos have names)
    if collection.names != photos.names:
        # A protocol that lists no images is about whatever the collection has: here, the photos that could be read.
        protocols = truths(collection.names)
    protocols = [photos.with_sizes(protocol, sizes) for protocol in protocols]
    collection, protocols = _add_distractors(request, collection, protocols)
    return [
        prepare(
            protocol,
            collection,
            photos.queries(protocol, raw),
            photos.path_of,
            extraction_seconds=seconds,
            skipped=tuple(photos.skipped),
            index=photos.index if isinstance(photos, IndexedPhotos) else None,
        )
        for protocol, (raw, seconds) in zip(protocols, extracted, strict=True)
    ]


def _add_distractors(
    request: Request, collection: DescriptorSet, protocols: list[Protocol]
) -> tuple[DescriptorSet, list[Protocol]]:
    """Add images that no query looks for: descriptors of their own, or a list of names in the collection."""
    if request.distractors is None:
        return collection, protocols
    if request.distractors.suffix.lower() == ".txt":
        if collection.names is None:
            raise InvalidInputError(
                f"{request.distractors} lists names and {request.collection} has none; give --names.",
                code="no-image-names",
            )
        find = name_lookup(collection.names)
        listed = read_names(request.distractors)
        missing = [name for name in listed if find(name) is None]
        if missing:
            raise InvalidInputError(
                f"{request.distractors} names images that are not in {request.collection}: {preview(missing)}.",
                code="unknown-image",
            )
        more = [collection.names[number] for name in listed if (number := find(name)) is not None]
        return collection, [protocol.with_distractors(more) for protocol in protocols]
    others, _ = read_collection(request.distractors)
    both = collection.concat(others)
    assert others.names is not None  # noqa: S101 (checked by `concat`)
    return both, [protocol.with_distractors(others.names) for protocol in protocols]
