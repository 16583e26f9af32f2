// SPDX-License-Identifier: Apache-2.0
#include "sim/report/report_notes.h"

#include "sim/report/communication_text.h"
#include "sim/report/fit_text.h"
#include "sim/report/plan_remarks.h"

namespace rehearse::sim {

std::vector<std::string> notes_of(const Prediction& p, const Scenario& scenario,
                                  const Cluster& cluster) {
  std::vector<std::string> notes = scenario.notes();
  for (const std::string& note : {p.variation_note, p.overlap_note, p.dropped_note, p.network_note,
                                  building_note(p), retries_note(p), server_note(p.plan)}) {
    if (!note.empty()) notes.push_back(note);
  }
  for (std::string& remark : plan_remarks(p, scenario, cluster)) notes.push_back(std::move(remark));
  return notes;
}

}  // namespace rehearse::sim
