// SPDX-License-Identifier: Apache-2.0
#include "sim/report/communication_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/report/link_words.h"
#include "sim/report/report_units.h"

namespace rehearse::sim {
namespace {

using report::bytes, report::seconds;

// What a row lost to others, and what ranks idled beyond its time, is told from these shares of the
// step on.
constexpr double kToldContended = 0.01, kToldBeyond = 0.001;

double seconds_of(Nanoseconds time) {
  return static_cast<double>(time.value) * 1e-9;
}

std::string links_of(const Traffic& traffic, const Cluster& cluster) {
  std::string text;
  for (const std::string& word : link_words(traffic, cluster)) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

std::string waits_line(const Traffic& t, const Plan& plan) {
  return fmt::format(
      "  {}: {} is waiting in blocking sends (blocking_transfer_us: {}), not in bus GB/s\n",
      op_word(t), seconds(seconds_of(t.waits)), plan.runtime.blocking_transfer_us);
}

std::string contended_line(const CommunicationRow& row, const std::string& link) {
  return fmt::format("  {} {}: {} longer than alone, as others load its links{}\n",
                     group_word(row.traffic), op_word(row.traffic), seconds(row.contended_s),
                     link.empty() ? "" : ", most of all " + link);
}

}  // namespace

std::string_view group_word(const Traffic& traffic) {
  return traffic.group == GroupKind::Other ? std::string_view("own") : traits(traffic.group).name;
}

std::string op_word(const Traffic& traffic) {
  return traffic.kind == OpKind::Send ? "SEND_RECV" : std::string(traits(traffic.kind).name);
}

std::string busiest_word(const CommunicationRow& row, const Prediction& p, const Cluster& cluster) {
  if (!row.busiest_link || !p.models || !p.models->network) return {};
  const std::span links = p.models->network->links();
  if (row.busiest_link.index() >= links.size()) return "cores";
  return link_word(links[row.busiest_link.index()].kind, cluster);
}

std::string communication_text(const Prediction& p, const Cluster& cluster) {
  if (p.communication.empty()) return "\ncommunication: none, one GPU does it all\n";
  std::size_t width = 6;
  for (const CommunicationRow& row : p.communication) {
    width = std::max(width, group_word(row.traffic).size());
  }
  std::string text = fmt::format(
      "\ncommunication per rank and step\n  {:<{}} {:<15} {:>5} {:>7} {:>10} {:>11} {:>11} {:>9}  "
      "{}\n",
      "group", width, "op", "ranks", "count", "bytes", "time", "exposed", "bus GB/s", "links");
  std::string below;
  bool beyond = false;
  for (const CommunicationRow& row : p.communication) {
    const Traffic& t = row.traffic;
    text += fmt::format("  {:<{}} {:<15} {:>5} {:>7} {:>10} {:>11} {:>11} {:>9.1f}  {}\n",
                        group_word(t), width, op_word(t), t.ranks, t.count, bytes(t.bytes),
                        seconds(seconds_of(t.time)), seconds(row.exposed_s),
                        row.bus_bandwidth_gb_per_s, links_of(t, cluster));
    if (t.waits.value > 0) below += waits_line(t, p.plan);
    if (row.contended_s >= kToldContended * p.step_s) {
      below += contended_line(row, busiest_word(row, p, cluster));
    }
    beyond |= row.exposed_s - seconds_of(t.time) - row.contended_s >= kToldBeyond * p.step_s;
  }
  if (beyond)
    below += "  exposed beyond time: ranks also idle for what others send, till the last\n";
  return text + below;
}

std::string server_note(const Plan& plan) {
  if (!plan.has_parameter_server()) return {};
  return fmt::format(
      "plan.data_parallel_algorithm parameter_server: for every micro-batch rank 0 scatters "
      "tokens, "
      "broadcasts parameters, gathers outputs, computes the loss, scatters its gradient and sums "
      "gradients, while the {} others wait; nothing overlaps. Bytes of a scatter or gather are "
      "those "
      "of all ranks, which pass rank 0's link",
      plan.replicas() - 1);
}

}  // namespace rehearse::sim
