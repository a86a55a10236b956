"""What ``manifind evaluate`` does: reads, checks, and measures. How it is written is `manifind.evaluation.tables`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifind.checks import check_choice as one_of
from manifind.errors import InvalidInputError
from manifind.evaluation.cache import Cache
from manifind.evaluation.comparison import ALL_FIGURES, Comparison, compare_methods, select_figures
from manifind.evaluation.dataset import EvaluationSet, prepare
from manifind.evaluation.descriptors import DescriptorSet, is_descriptors, read_collection, read_names, read_queries
from manifind.evaluation.formats import read_truth
from manifind.evaluation.measures import DEFINITIONS
from manifind.evaluation.methods import EVERY, METHODS, MethodSpec, method_spec, parse, with_index_parameters
from manifind.evaluation.photos import IndexedPhotos, Photos
from manifind.evaluation.protocol import Protocol, name_lookup, preview
from manifind.evaluation.published import check_descriptors, methods_of_the_paper
from manifind.evaluation.report import check_drawing, drawings, report
from manifind.evaluation.runner import Runner
from manifind.evaluation.tables import as_csv, as_json, as_markdown
from manifind.features import RegionExtractor
from manifind.index.storage.build_config import WhiteningTraining
from manifind.index.storage.layout import is_index
from manifind.types import StageProgress

Say = Callable[[str], None]
PAPER = "paper"
PRESETS = (PAPER,)
WANTED = {"photos": "photos", "index": "descriptors of an index"}


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

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
class Outcome:
    """What an evaluation measured, and where the photos are."""

    evaluation: Comparison
    pictures: dict[str, bytes]
    find: Callable[[str], Path | None] | None

    def page(self) -> str:
        """Return the report."""
        return report(self.evaluation, self.pictures, self.find)

    def write(self, folder: Path) -> list[Path]:
        """Write everything to a folder, and return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "results.json": as_json(self.evaluation),
            "results.csv": as_csv(self.evaluation),
            "report.md": as_markdown(self.evaluation),
            "report.html": self.page(),
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name, png in self.pictures.items():
            (folder / f"figure-{name}.png").write_bytes(png)
        return [folder / name for name in [*texts, *(f"figure-{name}.png" for name in self.pictures)]]


def run(
    asked: Request,
    extractor: Callable[[], tuple[RegionExtractor, WhiteningTraining | None]],
    progress: StageProgress = lambda *_: None,
    say: Say = lambda _: None,
) -> Outcome:
    """Evaluate.

    Parameters
    ----------
    asked
        What to do.
    extractor
        Called for the extractor and the training of its whitening, if the collection is a folder of photos.
    progress
        Called with a stage, how much of it is done, and how much there is.
    say
        Told what the user should know on the way.
    """
    one_of(asked.definition, DEFINITIONS, "definition")
    check_descriptors(asked.descriptors)
    if asked.preset is not None:
        one_of(asked.preset, PRESETS, "preset")
    figures = [*asked.figures, *([ALL_FIGURES] if asked.preset == PAPER and not asked.figures else [])]
    if figures:
        check_drawing()
    for text in asked.methods:  # words that are off are said before anything is read
        if text != EVERY:
            parse(text)
    if not asked.truths:
        raise InvalidInputError("no ground truth was given; give one with --truth.", code="no-truth")
    cache = Cache(asked.cache, say)
    photos: Photos | None = None
    if is_descriptors(asked.collection):
        data = _of_descriptors(asked)
    else:
        if not asked.collection.is_dir():
            raise FileNotFoundError(f"{asked.collection} does not exist; give photos, an index, or descriptors.")
        if asked.queries:
            raise InvalidInputError(
                "--queries is for descriptors; queries on photos are cut out of them as the truth says.",
                code="queries-of-photos",
            )
        if is_index(asked.collection):
            photos = IndexedPhotos(asked.collection, cache, progress, say)
        else:
            made, learning = extractor()
            photos = Photos(asked.collection, made, cache, progress, say, learning=learning)
        data = _of_photos(asked, photos)
    wanted, left_out = select_figures(figures, data)
    choices = _choices(asked, data)
    for sentence in left_out:
        say(sentence)
    for one in choices:
        if not any(each.serves(one.method.wants) for each in data):
            what = WANTED.get(one.method.wants, f"{one.method.wants} descriptors")
            say(f"{one.method.name} wants {what}, which are not there; it is left out.")
    runner = Runner(cache, progress, say, fresh=asked.fresh)
    found = compare_methods(
        data, choices, runner, definition=asked.definition, figures=wanted, descriptors=asked.descriptors
    )
    return Outcome(found, drawings(found), None if photos is None else photos.path_of)


def _choices(asked: Request, data: Sequence[EvaluationSet]) -> list[MethodSpec]:
    """Return the methods: those that were named, the paper's, or all."""
    columns = [one.protocol.column(task) for one in data for task in one.protocol.tasks]
    texts = [*asked.methods]
    if asked.preset == PAPER:
        texts += methods_of_the_paper(columns)
    usual = [method for method in METHODS.values() if method.in_all]
    if not any(one.serves("index") for one in data):
        usual = [method for method in usual if method.wants != "index"]
    choices: list[MethodSpec] = []
    for text in texts or [EVERY]:
        choices += [method_spec(method.name) for method in usual] if text == EVERY else [parse(text)]
    index = next((one.index for one in data if one.index is not None), None)
    if index is not None:
        choices = [with_index_parameters(choice, index.manifold) for choice in choices]
    return list({one.key: one for one in choices}.values())


def _of_descriptors(asked: Request) -> list[EvaluationSet]:
    collection, own_queries = read_collection(asked.collection, asked.names)
    if not asked.queries and own_queries is None:
        raise InvalidInputError(
            f"{asked.collection} has no queries; give their descriptors with --queries, one for each --truth.",
            code="no-query-descriptors",
        )
    if asked.queries and len(asked.queries) != len(asked.truths):
        raise InvalidInputError(
            f"{len(asked.truths)} --truth and {len(asked.queries)} --queries were given; give as many of each.",
            code="query-count",
        )
    protocols = [read_truth(path, collection.names, query_counts=asked.query_counts) for path in asked.truths]
    collection, protocols = _with_distractors(asked, collection, protocols)
    data = []
    for i, protocol in enumerate(protocols):
        queries = read_queries(asked.queries[i]) if asked.queries else own_queries
        assert queries is not None  # noqa: S101 (asked above)
        data.append(prepare(protocol, collection, queries))
    return data


def _of_photos(asked: Request, photos: Photos) -> list[EvaluationSet]:
    def truths(names: Sequence[str]) -> list[Protocol]:
        return [photos.truth(path, names, query_counts=asked.query_counts) for path in asked.truths]

    protocols = truths(photos.names)
    seen = [photos.extract_queries(protocol) for protocol in protocols]
    collection, sizes = photos.collection()
    assert collection.names is not None  # noqa: S101 (photos have names)
    if collection.names != photos.names:
        # A protocol that lists no images is about whatever the collection has: here, the photos that could be read.
        protocols = truths(collection.names)
    protocols = [photos.with_sizes(protocol, sizes) for protocol in protocols]
    collection, protocols = _with_distractors(asked, collection, protocols)
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
        for protocol, (raw, seconds) in zip(protocols, seen, strict=True)
    ]


def _with_distractors(
    asked: Request, collection: DescriptorSet, protocols: list[Protocol]
) -> tuple[DescriptorSet, list[Protocol]]:
    """Add images that no query looks for: descriptors of their own, or a list of names in the collection."""
    if asked.distractors is None:
        return collection, protocols
    if asked.distractors.suffix.lower() == ".txt":
        if collection.names is None:
            raise InvalidInputError(
                f"{asked.distractors} lists names and {asked.collection} has none; give --names.", code="no-image-names"
            )
        find = name_lookup(collection.names)
        listed = read_names(asked.distractors)
        missing = [name for name in listed if find(name) is None]
        if missing:
            raise InvalidInputError(
                f"{asked.distractors} names images that are not in {asked.collection}: {preview(missing)}.",
                code="unknown-image",
            )
        more = [collection.names[number] for name in listed if (number := find(name)) is not None]
        return collection, [protocol.with_distractors(more) for protocol in protocols]
    others, _ = read_collection(asked.distractors)
    both = collection.concat(others)
    assert others.names is not None  # noqa: S101 (asked by `concat`)
    return both, [protocol.with_distractors(others.names) for protocol in protocols]
