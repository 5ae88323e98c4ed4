"""Hypothesis strategies for cron text, and for instants near the changes of a zone's clock."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from tests.property.cron.oracle import LIMITS, NAMES, all_zones, changes


@st.composite
def item(draw: st.DrawFn, position: int) -> str:
    """One element of a list in the field at `position`, in each form of the grammar."""
    low, high = LIMITS[position]
    high += position == 4  # 7 is Sunday too
    names = {number: name for name, number in NAMES[position].items()}

    def written(number: int) -> str:
        if number in names and draw(st.booleans()):
            return draw(st.sampled_from([str.upper, str.lower, str.title]))(names[number])
        return str(number)

    form = draw(st.sampled_from(["a", "a", "a", "a-b", "a-b", "a/n", "a-b/n", "*/n", "*"]))
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    text = {"*": "*", "a": written(first), "a-b": f"{written(first)}-{last}"}.get(form.removesuffix("/n"), "")
    if position == 4 and form.startswith("a-b") and last == 7 and first > 0:
        text = text[: text.index("-")] + draw(st.sampled_from(["-7", "-sun", "-SUN"]))
    return text + (
        f"/{draw(st.sampled_from([1, 2, 3, 5, 7, 10, 15, 20, 30, 59, 60, 100]))}" if "/" in form else ""
    )


def field(position: int, star: int = 1) -> st.SearchStrategy[str]:
    """A field; the bare star comes up about `star` times in `star` + 2."""
    lists = st.lists(item(position), min_size=1, max_size=3).map(",".join)
    return st.one_of(*[st.just("*")] * star, item(position), lists)


def expressions(day_star: int = 4) -> st.SearchStrategy[str]:
    """Five fields; most leave the day alone, so that a short window has due times."""
    fields = (field(0), field(1), field(2, day_star), field(3, day_star), field(4, day_star))
    return st.tuples(*fields).map(" ".join)


zones = st.sampled_from(all_zones()).filter(lambda zone: zone != "Factory")


@st.composite
def changes_of_a_clock(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone, and an instant (a whole UTC minute) at which its clock changes, in 1970 to 2040."""
    zone = draw(zones)
    known = [change for change in changes(zone) if 1970 <= change.year < 2040]
    if known:
        return zone, draw(st.sampled_from(known))
    return zone, draw(instants(1970, 2040))


def instants(first: int, last: int) -> st.SearchStrategy[datetime]:
    """Whole UTC minutes in the years [first, last)."""
    begin, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
    minutes = (end - begin) // timedelta(minutes=1)
    return st.integers(0, minutes - 1).map(lambda minute: begin + timedelta(minutes=minute))
