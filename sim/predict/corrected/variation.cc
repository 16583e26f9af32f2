// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/corrected/variation.h"

#include <algorithm>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "schedules/base/random.h"
#include "schedules/scenario/mesh.h"

namespace rehearse::sim {
namespace {

// Speeds of all ranks, those of a GPU as described 1.
std::vector<double> speeds(const Variation& variation, const Mesh& mesh) {
  std::vector<double> speed(static_cast<std::size_t>(mesh.ranks()), 1);
  if (variation.speed_sigma > 0) {
    for (std::size_t rank = 0; rank < speed.size(); ++rank) {
      const double luck = normal(static_cast<std::uint64_t>(variation.seed), 0, rank);
      speed[rank] = std::clamp(1 + variation.speed_sigma * luck, 0.5, 2.0);
    }
  }
  for (const SlowRanks& slow : variation.slow) {
    for (std::int32_t rank = slow.first; rank <= std::min(slow.last, mesh.ranks() - 1); ++rank) {
      speed[static_cast<std::size_t>(rank)] *= slow.speed;
    }
  }
  return speed;
}

// Replicas' data coordinates that compute every layer together: those of one expert-parallel group.
std::int32_t coupled(const Plan& plan) {
  const std::int32_t experts = plan.expert_parallel * plan.expert_tensor_parallel;
  return std::max(1, experts / (plan.tensor_parallel * plan.context_parallel));
}

// Replicas that compute together, one group of context or expert parallelism: by position.
struct Block {
  std::vector<double> factor, waits;
  // How long its pipeline takes against one of GPUs as described: its slowest position counts for
  // every micro-batch, the others for the first.
  double lasts(std::int32_t microbatches) const {
    const double most = std::ranges::max(factor);
    const double all = std::accumulate(factor.begin(), factor.end(), 0.0);
    return (microbatches - 1) * most + all;
  }
  bool operator==(const Block&) const = default;
};

Block block_of(const std::vector<double>& speed, const Mesh& mesh, const Plan& plan,
               std::int32_t first) {
  const std::int32_t end = std::min(first + coupled(plan), plan.data_parallel);
  Block block;
  for (std::int32_t position = 0; position < plan.pipeline_parallel; ++position) {
    double most = 0, sum = 0;
    for (std::int32_t data = first; data < end; ++data) {
      for (std::int32_t c = 0; c < plan.context_parallel; ++c) {
        for (std::int32_t t = 0; t < plan.tensor_parallel; ++t) {
          const Rank rank = mesh.rank({t, c, data, position});
          const double factor = 1 / speed[rank.index()];
          most = std::max(most, factor);
          sum += factor;
        }
      }
    }
    const double mean = sum / ((end - first) * plan.context_parallel * plan.tensor_parallel);
    block.factor.push_back(most);
    block.waits.push_back(most > 1 ? std::min((most - mean) / (most - 1), 1.0) : 0);
  }
  return block;
}

Block mean_of(std::span<const Block> blocks) {
  Block mean = blocks.front();
  for (std::size_t position = 0; position < mean.factor.size(); ++position) {
    double factor = 0, waits = 0;
    for (const Block& block : blocks) {
      factor += block.factor[position];
      waits += block.waits[position];
    }
    mean.factor[position] = factor / static_cast<double>(blocks.size());
    mean.waits[position] = waits / static_cast<double>(blocks.size());
  }
  return mean;
}

// Begins of ranges of blocks: neighbours that are equal; or, where these are too many, the slowest
// blocks alone and what lies between them.
std::vector<std::size_t> ranges_of(const std::vector<Block>& blocks, std::int32_t microbatches) {
  std::vector<std::size_t> begins{0};
  for (std::size_t b = 1; b < blocks.size(); ++b) {
    if (!(blocks[b] == blocks[b - 1])) begins.push_back(b);
  }
  if (begins.size() <= kMostRanges) return begins;
  std::vector<std::size_t> slowest(blocks.size());
  std::iota(slowest.begin(), slowest.end(), std::size_t{0});
  constexpr std::size_t kAlone = (kMostRanges - 1) / 2;
  std::partial_sort(slowest.begin(), slowest.begin() + kAlone, slowest.end(),
                    [&](std::size_t a, std::size_t b) {
                      const double x = blocks[a].lasts(microbatches);
                      const double y = blocks[b].lasts(microbatches);
                      return x != y ? x > y : a < b;
                    });
  begins.assign(1, 0);
  for (std::size_t i = 0; i < kAlone; ++i) {
    begins.push_back(slowest[i]);
    if (slowest[i] + 1 < blocks.size()) begins.push_back(slowest[i] + 1);
  }
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

// Cuts the longest ranges in two until every range has luck of its own, or there are as many as may
// be.
void cut_for_luck(std::vector<std::size_t>& begins, std::size_t blocks) {
  while (begins.size() < std::min<std::size_t>(kMostRanges, blocks)) {
    std::size_t longest = 0, length = 0;
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : blocks;
      if (end - begins[i] > length) length = end - begins[i], longest = i;
    }
    const std::size_t middle = begins[longest] + length / 2;
    begins.insert(begins.begin() + static_cast<std::ptrdiff_t>(longest) + 1, middle);
  }
}

}  // namespace

ReplicaClasses replica_classes(const Variation& variation, const Plan& plan) {
  const Mesh mesh(plan);
  const std::vector<double> speed = speeds(variation, mesh);
  std::vector<Block> blocks;
  const std::int32_t each = coupled(plan);
  for (std::int32_t d = 0; d < plan.data_parallel; d += each) {
    blocks.push_back(block_of(speed, mesh, plan, d));
  }
  std::vector<std::size_t> begins = ranges_of(blocks, plan.microbatches());
  if (variation.jitter_sigma > 0) cut_for_luck(begins, blocks.size());
  ReplicaClasses classes{.positions = plan.pipeline_parallel};
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : blocks.size();
    const std::span<const Block> together = std::span(blocks).subspan(begins[i], end - begins[i]);
    const Block block = mean_of(together);
    if (std::ranges::any_of(together, [&](const Block& b) { return !(b == together.front()); })) {
      classes.merged += static_cast<std::int32_t>(together.size()) * each * plan.context_parallel;
    }
    classes.begins.push_back(static_cast<std::int32_t>(begins[i]) * each * plan.context_parallel);
    classes.factor.insert(classes.factor.end(), block.factor.begin(), block.factor.end());
    classes.waits.insert(classes.waits.end(), block.waits.begin(), block.waits.end());
  }
  const auto slowest = std::ranges::min_element(speed);
  if (*slowest < 1) {
    classes.slowest_rank = static_cast<std::int32_t>(slowest - speed.begin());
    classes.slowest_speed = *slowest;
  }
  return classes;
}

std::string variation_note(const Variation& variation, const ReplicaClasses& classes,
                           const Plan& plan) {
  std::string text = "variation: ";
  if (classes.slowest_rank >= 0) {
    text += fmt::format("the slowest GPU, rank {}, has {:.3g} of the speed of one as described",
                        classes.slowest_rank, classes.slowest_speed);
  }
  if (variation.jitter_sigma > 0) {
    text += fmt::format("{}single ops' times spread by {:.3g} %",
                        classes.slowest_rank >= 0 ? "; " : "", 100 * variation.jitter_sigma);
  }
  if (classes.slowest_rank < 0 && variation.jitter_sigma == 0)
    text += "no GPU is slower than described";
  if (classes.merged > 0) {
    text += fmt::format("; {} of {} replicas have the mean speeds of their neighbours",
                        classes.merged, plan.data_parallel * plan.context_parallel);
  }
  return text;
}

}  // namespace rehearse::sim
