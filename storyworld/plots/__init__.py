"""The plots: the events of a story, one by one, in a world that refuses nonsense.

A plot rolls dice at every turn, so that no two of its stories need be alike.
"""

from storyworld.plots.needs import counting, meal, rain
from storyworld.plots.things import (
    gift,
    hidden,
    lending,
    repair,
    search,
    trade,
    trip,
    twins,
    wandering,
)

PLOTS = (
    *(search, gift, trade, trip, meal, hidden),
    *(counting, rain, repair, lending, twins, wandering),
)
