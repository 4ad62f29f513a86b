"""The queries of a locustfile's tasks, read from their text."""

from __future__ import annotations

from typing import Any, ClassVar

from tsbench.drive.bare.asked_queries import asked_queries, may_write


def tagged(*tags: str) -> Any:
    def tag(task: Any) -> Any:
        task.locust_tag_set = {*tags}
        return task

    return tag


class Inner:
    """A task set."""

    def ask(self: Any) -> None:
        self.user.query("in-a-task-set")

    tasks: ClassVar = [ask]


class Asker:
    def once(self: Any) -> None:
        self.query("lastpoint")

    def in_a_loop(self: Any) -> None:
        for _ in range(3):
            self.query(kind="lastpont")

        def later() -> None:
            self.query("in-a-closure")

        later()

    def computed(self: Any) -> None:
        kind = "raw-" + str(self)
        self.query(kind)
        self.write(250)

    @tagged("slow")
    def slow(self: Any) -> None:
        self.query("raw-all")

    def no_task(self: Any) -> None:
        self.query("never-asked")

    tasks: ClassVar = [once, once, in_a_loop, computed, slow, Inner]


ALWAYS = {
    "lastpoint": "Asker.once",
    "lastpont": "Asker.in_a_loop",
    "in-a-closure": "Asker.in_a_loop",
    "in-a-task-set": "Asker.Inner.ask",
}


def test_names_that_stand_in_the_text_of_tasks_are_found_and_no_others() -> None:
    assert asked_queries([Asker]) == {**ALWAYS, "raw-all": "Asker.slow"}


def test_tasks_that_their_tags_leave_out_ask_nothing() -> None:
    assert asked_queries([Asker], exclude_tags=["slow"]) == ALWAYS
    assert asked_queries([Asker], tags=["slow"]) == {"raw-all": "Asker.slow"}


class Base:
    """Stands for TimeSeriesUser: Locust must not be imported into the tests' own process."""

    __module__ = "tsbench.drive.user"

    def write(self, points: int) -> None:
        self.write(points)


class OnlyAsks(Base):
    def ask(self: Any) -> None:
        self.query("lastpoint")

    tasks: ClassVar = [ask]


class WritesByAHelper(OnlyAsks):
    def helper(self) -> None:
        def later() -> None:
            self.write(10)

        later()


class Writes(WritesByAHelper):
    pass


def test_users_that_may_write_are_told_from_those_that_only_ask() -> None:
    assert may_write([Asker])
    assert may_write([OnlyAsks, Writes])
    assert not may_write([OnlyAsks])
    assert not may_write([])
