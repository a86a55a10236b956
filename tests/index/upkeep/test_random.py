"""A folder changes at random, and its index is always the one that a fresh build would make."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from manifind.index import Index
from tests.index.small import save_photo, small_extractor
from tests.index.upkeep.fresh import assert_as_fresh


class Upkeep(RuleBasedStateMachine):
    """A folder that changes at random, and an index that follows by whatever call fits."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.base = Path(self.temporary.name)
        self.folder = self.base / "photos"
        self.extractor = small_extractor()
        self.seeds = iter(range(100, 10_000))
        self.made: Index | None = None
        self.behind = False

    def teardown(self) -> None:
        self.temporary.cleanup()

    @initialize(count=st.integers(1, 6), k=st.integers(2, 40))
    def start(self, count: int, k: int) -> None:
        self.parameters = {"k": k, "query_k": 10}
        for seed in range(count):
            save_photo(self.folder / f"{seed}.png", seed)
        self.made = Index.create(
            self.base / "i.manifind",
            self.folder,
            extractor=self.extractor,
            **self.parameters,  # type: ignore[arg-type]
        )

    @property
    def keys(self) -> list[str]:
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.png"))

    @rule(count=st.integers(1, 3), below=st.sampled_from(["", "a/", "z/"]))
    def add(self, count: int, below: str) -> None:
        assert self.made is not None
        paths = []
        for _ in range(count):
            seed = next(self.seeds)
            paths.append(self.folder / f"{below}{seed % 7}-{seed}.png")
            save_photo(paths[-1], seed)
        if self.behind:
            return
        assert self.made.add(paths).extracted == count

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        assert self.made is not None
        known = [one.key for one in self.made.catalogue.images]
        if len(known) < 2:
            return
        gone = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=len(known) - 1, unique=True))
        if set(self.keys) <= set(gone):
            return  # the index would have photos, and its folder none
        self.made.remove(gone)
        for key in gone:
            (self.folder / key).unlink(missing_ok=True)

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        save_photo(self.folder / data.draw(st.sampled_from(self.keys)), next(self.seeds))
        self.behind = True

    @rule(data=st.data(), below=st.sampled_from(["", "a/", "m/"]))
    def move(self, data: st.DataObject, below: str) -> None:
        source = self.folder / data.draw(st.sampled_from(self.keys))
        target = self.folder / f"{below}moved-{next(self.seeds)}.png"
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
        self.behind = True

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if len(self.keys) > 1:
            (self.folder / data.draw(st.sampled_from(self.keys))).unlink()
            self.behind = True

    @precondition(lambda self: self.behind)
    @rule()
    def sync(self) -> None:
        assert self.made is not None
        self.made.sync()
        self.behind = False

    @rule()
    def reopen(self) -> None:
        assert self.made is not None
        path = self.made.path
        self.made.close()
        self.made = Index.open(path, extractor=self.extractor, verify=True)

    @invariant()
    def as_fresh(self) -> None:
        if self.made is None or self.behind:
            return
        fresh = Index.create(
            self.base / "fresh.manifind",
            self.folder,
            extractor=self.extractor,
            **self.parameters,  # type: ignore[arg-type]
        )
        try:
            assert_as_fresh(self.made, fresh)
            assert [problem for problem in self.made.check() if problem.is_damage] == []
        finally:
            for file in (self.base / "fresh.manifind").iterdir():
                file.unlink()
            (self.base / "fresh.manifind").rmdir()


Upkeep.TestCase.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


TestUpkeep = Upkeep.TestCase
