// What comes first in a search: what users read, then rules, then why it is so. (The rest is Sphinx's own.)
const FIRST = [/^docs\/(semantics|dialects)\//, /^docs\/[^/]+$/, /^(README$|examples\/)/, /^docs\/rules\//, /./];

var Scorer = {
  score: (result) => result[4] - 2 * FIRST.findIndex((pages) => pages.test(result[0])),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
