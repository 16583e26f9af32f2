// SPDX-License-Identifier: Apache-2.0
// How tokens come to their experts, and what these make of them comes home: copy by copy; or whole,
// and back as one row of a rank: all tokens gathered, or each sent once to every rank it visits.
#include "schedules/body/own/body_experts.h"

namespace rehearse {
namespace {

using H = TensorHome;
using K = Kernel;

}  // namespace

void ExpertBody::travel(Axis axis, Kernel kernel, std::string_view name, std::int64_t bytes, T from,
                        T to, NodePhase phase) {
  Node& node = over(axis, kernel, name, bytes, from, to, phase);
  const bool sent = kernel == K::Dispatch || kernel == K::Combine;
  if (sent && room_.slot == 0) {  // else they are slots of one size
    node.reads.push_back(arrivals_);
    node.routed = true;
  }
  if (!overlaps_) return;
  BodyBuilder::runs_beside(node);
  if (beside_.empty()) return;
  beside_.front()();
  beside_.pop_front();
}

void ExpertBody::run_rest() {
  for (; !beside_.empty(); beside_.pop_front()) beside_.front()();
}

// Brings copies(n, k), or all rows where nothing is sent, into the order of their experts.
void ExpertBody::rows_to_experts(T from, T rows, std::string_view name, NodePhase phase) {
  const std::int64_t element = layout_.shape.element;
  T arrived = from;
  if (sends_over_ranks()) {
    arrived = workspace("arrived", room_.arrived * h_);
    travel(Axis::Expert, K::Dispatch, name, element * room_.sent * h_, from, arrived, phase);
  }
  if (gathers_rows()) {
    const std::int64_t all = x_.bringing * room_.arrived * h_;
    const T gathered = workspace("gathered rows", all);
    over(Axis::ExpertTensor, K::AllGather, "rows; all_gather etp", element * all, arrived, gathered,
         phase);
    arrived = gathered;
  }
  b_.node(K::GatherRows, "rows by expert", {arrived, from_}, {rows}, phase).routed = true;
}

// The reverse: partial sums of q ranks are summed.
void ExpertBody::rows_home(T rows, T home, std::string_view name, NodePhase phase) {
  const std::int64_t element = layout_.shape.element;
  const std::int64_t all = (gathers_rows() ? x_.bringing : 1) * room_.arrived * h_;
  const bool last = !sends_over_ranks();  // the rows are at home once they are summed
  T leaving = last && !gathers_rows() ? home : workspace("leaving", all);
  b_.node(K::ScatterRows, "rows by source", {rows, from_}, {leaving}, phase).routed = true;
  if (gathers_rows()) {
    const T own = last ? home : workspace("leaving, summed", room_.arrived * h_);
    over(Axis::ExpertTensor, K::ReduceScatter, "rows; reduce_scatter etp", element * all, leaving,
         own, phase);
    leaving = own;
  }
  if (last) return;
  travel(Axis::Expert, K::Combine, name, element * room_.sent * h_, leaving, home, phase);
}

ExpertBody::T ExpertBody::tokens_here(T local, std::string_view gathered, std::string_view sent,
                                      NodePhase phase) {
  return brings_tokens() ? bring_tokens(local, gathered, sent, phase) : local;
}

ExpertBody::T ExpertBody::bring_tokens(T local, std::string_view gathered, std::string_view sent,
                                       NodePhase phase) {
  const std::int64_t element = layout_.shape.element;
  const T all = workspace("tokens of all", tokens() * h_);
  if (x_.gathers_tokens) {
    travel(Axis::ExpertBlock, K::AllGather, gathered, element * tokens() * h_, local, all, phase);
    return all;
  }
  const T leaving = workspace("leaving", visits() * h_);
  b_.node(K::GatherRows, "tokens by rank", {local, leaving_, sent_}, {leaving}, phase);
  travel(Axis::Expert, K::Dispatch, sent, element * travelling() * h_, leaving, all, phase);
  return all;
}

void ExpertBody::take_home(T all, T local, std::string_view sent) {
  const std::int64_t element = layout_.shape.element;
  if (x_.gathers_tokens) {
    travel(Axis::ExpertBlock, K::ReduceScatter, "tokens; reduce_scatter ep",
           element * tokens() * h_, all, local, NodePhase::Main);
    return;
  }
  const T home = workspace("home", visits() * h_);
  travel(Axis::Expert, K::Combine, sent, element * travelling() * h_, all, home, NodePhase::Main);
  b_.node(K::SumCopies, "sums over ranks", {home, home_row_}, {local});
}

// From what the own tokens chose, (n, k): the weights of the tokens here, and their choice
// (tokens, k), which it returns. Where tokens are sent, the ranks first learn what all have chosen:
// so each knows what comes and for whom.
ExpertBody::T ExpertBody::bring_choice(T own) {
  const std::int64_t all_copies = x_.block * x_.copies;
  const T all = b_.tensor("chosen experts of all", H::Workspace, kScoreBytes * all_copies);
  over(Axis::ExpertBlock, K::AllGather, "chosen experts; all_gather ep", kScoreBytes * all_copies,
       own, all, NodePhase::Main);
  if (x_.gathers_tokens) {
    over(Axis::ExpertBlock, K::AllGather, "weights; all_gather ep", kScoreBytes * all_copies,
         weights_, weights_all_, NodePhase::Main);
    return all;
  }
  const std::int64_t k = model_.per_token;
  const T here = b_.tensor("chosen experts here", H::Workspace, kScoreBytes * tokens() * k);
  b_.node(K::SortVisits, "tokens by rank", {all},
          {leaving_, sent_, home_row_, home_weight_, arrivals_, here});
  const T leaving = b_.tensor("leaving weights", H::Workspace, kScoreBytes * visits() * k);
  b_.node(K::GatherWeights, "weights by rank", {weights_, leaving_, sent_}, {leaving});
  Node& node = over(Axis::Expert, K::DispatchWeights, "weights; all_to_all ep",
                    kScoreBytes * visits() * k, leaving, weights_all_, NodePhase::Main);
  if (room_.slot == 0) node.reads.push_back(arrivals_);
  return here;
}

// From the gradients of the weights of the tokens here to those of the own tokens' weights.
void ExpertBody::weights_home(T all, T local) {
  if (!brings_tokens()) return;
  const std::int64_t k = model_.per_token;
  if (x_.gathers_tokens) {
    over(Axis::ExpertBlock, K::ReduceScatter, "weights; reduce_scatter ep",
         kScoreBytes * tokens() * k, all, local, NodePhase::Main)
        .fp32 = true;
    return;
  }
  const T home = b_.tensor("home weights", H::Workspace, kScoreBytes * visits() * k);
  Node& node = over(Axis::Expert, K::CombineWeights, "weights backward; all_to_all ep",
                    kScoreBytes * visits() * k, all, home, NodePhase::Main);
  if (room_.slot == 0) node.reads.push_back(arrivals_);
  b_.node(K::GatherWeights, "weights of copies", {home, home_weight_}, {local});
}

}  // namespace rehearse
