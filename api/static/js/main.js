/** Starts the page: every part once, then the journal and the moment that the address names. */

import { auditTab } from "./audit-tab.js";
import { diffTab } from "./diff-tab.js";
import { eventsTab } from "./event-list.js";
import { evictionTab } from "./eviction-tab.js";
import { explainTab } from "./explain-tab.js";
import { startGoTo } from "./go-to.js";
import { readHash, startHash } from "./hash.js";
import { loadJournals, startJournals } from "./journals.js";
import { startKeys } from "./keys.js";
import { startLevels } from "./levels.js";
import { startMoment } from "./moment.js";
import { poolsTab } from "./pools-tab.js";
import { leasesTab, requestsTab } from "./request-tabs.js";
import { startSide } from "./side.js";
import { change } from "./state.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";
import { startTimeBar } from "./time-bar.js";
import { startTransport } from "./transport.js";
import { startTreeBar } from "./tree-bar.js";
import { startTreeKeys } from "./tree-keys.js";
import { startTreeLegend } from "./tree-legend.js";
import { startTreePointer } from "./tree-pointer.js";
import { startTreeView } from "./tree-view.js";

const { journal, ...said } = readHash();
startTheme();
change(said);
startMoment();
startJournals();
startGoTo();
startLevels();
startTransport();
startTimeBar();
startTreeView();
startTreeBar();
startTreeKeys();
startTreePointer();
startTreeLegend();
startSide();
startTabs([
  eventsTab(),
  poolsTab(),
  requestsTab(),
  leasesTab(),
  evictionTab(),
  explainTab(),
  diffTab(),
  auditTab(),
]);
startKeys();
startHash();
loadJournals(journal);
