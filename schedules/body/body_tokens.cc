// SPDX-License-Identifier: Apache-2.0
// Tokens come whole to the ranks of their experts, and what a rank makes of a token goes home as
// one row: all tokens gathered, or each sent once to every rank that it visits.
#include "schedules/body/body_experts.h"

namespace rehearse {
namespace {

using H = TensorHome;
using K = Kernel;
constexpr std::int64_t kNumber = 4;  // bytes of an index, a score, a weight

}  // namespace

ExpertBody::T ExpertBody::tokens_here(T local, std::string_view gathered, std::string_view sent,
                                      NodePhase phase) {
  return brings_tokens() ? bring_tokens(local, gathered, sent, phase) : local;
}

ExpertBody::T ExpertBody::bring_tokens(T local, std::string_view gathered, std::string_view sent,
                                       NodePhase phase) {
  const std::int64_t element = layout_.shape.element;
  const T all = workspace("tokens of all", tokens() * h_);
  if (gathers_) {
    travel(Axis::ExpertBlock, K::AllGather, gathered, element * tokens() * h_, local, all, phase);
    return all;
  }
  const T leaving = workspace("leaving", visits() * h_);
  b_.node(K::GatherRows, "tokens by rank", {local, leaving_, sent_}, {leaving}, phase);
  travel(Axis::Expert, K::Dispatch, sent, element * x_.copies * h_, leaving, all, phase);
  return all;
}

void ExpertBody::take_home(T all, T local, std::string_view sent) {
  const std::int64_t element = layout_.shape.element;
  if (gathers_) {
    travel(Axis::ExpertBlock, K::ReduceScatter, "tokens; reduce_scatter ep",
           element * tokens() * h_, all, local, NodePhase::Main);
    return;
  }
  const T home = workspace("home", visits() * h_);
  travel(Axis::Expert, K::Combine, sent, element * x_.copies * h_, all, home, NodePhase::Main);
  b_.node(K::SumCopies, "sums over ranks", {home, home_row_}, {local});
}

// From what the own tokens chose, (n, k): the weights of the tokens here, and their choice
// (tokens, k), which it returns. Where tokens are sent, the ranks first learn what all have chosen:
// so each knows what comes and for whom.
ExpertBody::T ExpertBody::bring_choice(T own) {
  const std::int64_t all_copies = block_ * x_.copies;
  const T all = b_.tensor("chosen experts of all", H::Workspace, kNumber * all_copies);
  over(Axis::ExpertBlock, K::AllGather, "chosen experts; all_gather ep", kNumber * all_copies, own,
       all, NodePhase::Main);
  if (gathers_) {
    over(Axis::ExpertBlock, K::AllGather, "weights; all_gather ep", kNumber * all_copies, weights_,
         weights_all_, NodePhase::Main);
    return all;
  }
  const std::int64_t k = model_.per_token;
  const T here = b_.tensor("chosen experts here", H::Workspace, kNumber * tokens() * k);
  b_.node(K::SortVisits, "tokens by rank", {all},
          {leaving_, sent_, home_row_, home_weight_, arrivals_, here});
  const T leaving = b_.tensor("leaving weights", H::Workspace, kNumber * visits() * k);
  b_.node(K::GatherWeights, "weights by rank", {weights_, leaving_, sent_}, {leaving});
  Node& node = over(Axis::Expert, K::DispatchWeights, "weights; all_to_all ep",
                    kNumber * visits() * k, leaving, weights_all_, NodePhase::Main);
  node.reads.push_back(arrivals_);
  return here;
}

// From the gradients of the weights of the tokens here to those of the own tokens' weights.
void ExpertBody::weights_home(T all, T local) {
  if (!brings_tokens()) return;
  const std::int64_t k = model_.per_token;
  if (gathers_) {
    over(Axis::ExpertBlock, K::ReduceScatter, "weights; reduce_scatter ep", kNumber * tokens() * k,
         all, local, NodePhase::Main)
        .fp32 = true;
    return;
  }
  const T home = b_.tensor("home weights", H::Workspace, kNumber * visits() * k);
  Node& node = over(Axis::Expert, K::CombineWeights, "weights backward; all_to_all ep",
                    kNumber * visits() * k, all, home, NodePhase::Main);
  node.reads.push_back(arrivals_);
  b_.node(K::GatherWeights, "weights of copies", {home, home_weight_}, {local});
}

}  // namespace rehearse
