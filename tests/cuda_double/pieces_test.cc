// SPDX-License-Identifier: Apache-2.0
// Products in pieces beside their collectives over tp, on a device: each on a track of its own, in
// the order that the data needs, in one process and over NCCL, with the bits of whole products.
#include <set>

#include "exec/cpu/kernels/instruction_set.h"
#include "tests/cuda_double/processes.h"
#include "tests/exec/step/forwarding_device.h"
#include "tests/exec/step/forwarding_kernels.h"
#include "tests/exec/step/layouts.h"

namespace rehearse::exec {
namespace {

Prepared prepare_steps(Family family, const Keys& keys, std::int64_t steps) {
  Prepared p = prepare(family, keys);
  p.scenario.train.steps = steps;
  return p;
}

// The double's streams take their time: half of the matrix' samples.
std::vector<Cell> in_pieces() {
  std::vector<Cell> cells;
  for (const Cell& cell : kLayouts) {
    if (std::ranges::count(cell.plan, "overlap.tensor_parallel=true") == 0) continue;
    cells.push_back(cell);
    cells.back().plan.emplace_back("global_batch=4");
  }
  return cells;
}

Keys whole(Keys keys) {
  std::erase_if(keys, [](const std::string& key) { return key.starts_with("overlap.tensor"); });
  return keys;
}

// Eigen's products, the CPU's generic ones, sum a row by how many there are.
TEST(Pieces, GiveTheBitsOfTheCpusWholeProducts) {
  const bool own_products = instruction_set() != "generic";
  ASSERT_GE(in_pieces().size(), 14u);
  for (const Cell& cell : in_pieces()) {
    SCOPED_TRACE(cell.name);
    Prepared p = prepare_steps(cell.family, cell.plan, 1);
    const Trained there = train_prepared(p, cuda_options(p));
    const Trained here = train_layout(cell.family, whole(cell.plan), 1, 1);
    ASSERT_EQ(there.error, "");
    ASSERT_EQ(here.error, "");
    EXPECT_TRUE(distance(there, here).bitwise || !own_products);
    EXPECT_LE(distance(there, here).weight, 1e-5);
    EXPECT_EQ(cuda_double::unordered(), "");
  }
}

// The layouts of two and of four ranks that differ most: gathers and sums of rows that lie apart,
// sums of whole rows, and both between stages.
const std::vector<Keys> kOverNccl{
    {"global_batch=2", "tensor_parallel=2", "overlap.tensor_parallel=true"},
    {"global_batch=2", "tensor_parallel=4", "sequence_parallel=true",
     "overlap.tensor_parallel=true"},
    {"global_batch=2", "tensor_parallel=2", "sequence_parallel=true",
     "overlap.tensor_parallel=true", "overlap.tensor_parallel_chunks=2", "pipeline_parallel=2",
     "schedule=zb_h1", "recompute=full"}};

TEST(Pieces, GiveTheBitsOfWholeProductsOverNccl) {
  const bool own_products = instruction_set() != "generic";
  for (const Keys& keys : kOverNccl) {
    SCOPED_TRACE(testing::PrintToString(keys));
    Prepared p = prepare_steps(Family::Gpt2, keys, 2);
    const std::vector<Outcome> there = train_with_nccl(p, {});
    const Trained here = train_layout(Family::Gpt2, whole(keys), 1, 2);
    for (const Outcome& process : there) {
      ASSERT_EQ(process.error, "");
      ASSERT_EQ(process.losses.size(), here.losses.size());
      if (own_products) {
        EXPECT_EQ(process.losses, here.losses);
      }
    }
    EXPECT_EQ(cuda_double::unordered(), "");
  }
}

// ---- what runs beside what ----

// A mark of a rank for every product and every collective over tp: two that nothing orders are
// found as if they wrote the same memory.
class Marks {
 public:
  explicit Marks(Device& device) : streams_(dynamic_cast<cuda::StreamSource&>(device)) {}
  void set(Lane lane, const char* what) {
    if (lane.rank != 0) return;
    tracks[what].insert(lane.track);
    cuda_double::enqueue(streams_.stream(lane), cuda_double::Touched(what).writes(&mark_), [] {});
  }
  std::map<std::string, std::set<Track>> tracks;

 private:
  cuda::StreamSource& streams_;
  char mark_ = 0;
};
class MarkedProducts final : public Forwarding {
 public:
  MarkedProducts(std::unique_ptr<Kernels> inner, std::shared_ptr<Marks> marks)
      : Forwarding(std::move(inner)), marks_(std::move(marks)) {}
  void linear(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
              const void* w, const void* bias, void* y) override {
    marks_->set(lane, "product");
    inner_->linear(lane, m, n, k, x, w, bias, y);
  }
  void linear_piece(Lane lane, const PieceShape& piece, const void* x, const void* w,
                    const void* bias, void* y) override {
    marks_->set(lane, "product");
    inner_->linear_piece(lane, piece, x, w, bias, y);
  }

 private:
  std::shared_ptr<Marks> marks_;
};
class MarkedCollectives final : public ForwardingDevice {
 public:
  MarkedCollectives(std::unique_ptr<Device> inner, std::shared_ptr<Marks> marks)
      : ForwardingDevice(std::move(inner)), marks_(std::move(marks)) {}
  void exchange(const Exchange& exchange) override {
    ForwardingDevice::exchange(exchange);
    for (const Lane lane : exchange.lanes) marks_->set(lane, "collective");
  }

 private:
  std::shared_ptr<Marks> marks_;
};

struct Beside {
  std::string unordered;
  std::map<std::string, std::set<Track>> tracks;
};
Beside beside(const Keys& keys) {
  Prepared p = prepare_steps(Family::Llama, keys, 1);
  std::shared_ptr<Marks> marks;
  const Trained run = train_prepared(p, cuda_options(p), [&](Backend made) {
    marks = std::make_shared<Marks>(*made.device);
    made.kernels = std::make_unique<MarkedProducts>(std::move(made.kernels), marks);
    made.device = std::make_unique<MarkedCollectives>(std::move(made.device), marks);
    return made;
  });
  EXPECT_EQ(run.error, "");
  return {cuda_double::unordered(), marks->tracks};
}

TEST(Pieces, TravelBesideProducts) {
  const Keys apart{"global_batch=2", "tensor_parallel=2", "sequence_parallel=true"};
  Keys cut = apart;
  cut.emplace_back("overlap.tensor_parallel=true");
  const Beside one = beside(apart), other = beside(cut);
  EXPECT_EQ(one.unordered, "");
  EXPECT_EQ(one.tracks.at("collective"), std::set{Track::Main});
  EXPECT_NE(other.unordered.find("product"), std::string::npos) << other.unordered;
  EXPECT_NE(other.unordered.find("collective"), std::string::npos) << other.unordered;
  // The first gather and the last sum are alone, and need no other track.
  EXPECT_EQ(other.tracks.at("collective"), (std::set{Track::Main, Track::Collectives}));
  EXPECT_EQ(other.tracks.at("product"), std::set{Track::Main});
}

// ---- a missing event ----

// Leaves out what orders one track behind another.
class Unordered final : public ForwardingDevice {
 public:
  Unordered(std::unique_ptr<Device> inner, std::pair<Track, Track> left_out)
      : ForwardingDevice(std::move(inner)), left_out_(left_out) {}
  void order(Lane lane, Lane after) override {
    if (std::pair(lane.track, after.track) != left_out_) ForwardingDevice::order(lane, after);
  }

 private:
  std::pair<Track, Track> left_out_;
};

TEST(Pieces, AnOrderThatIsLeftOutIsFound) {
  using enum Track;
  for (const Keys& keys : kOverNccl) {
    for (const auto& left_out : {std::pair{Main, Collectives}, {Collectives, Main}}) {
      SCOPED_TRACE(testing::PrintToString(keys) +
                   (left_out.first == Main ? ": the fork" : ": the join"));
      const auto wrap = [&](std::unique_ptr<Device> device) -> std::unique_ptr<Device> {
        return std::make_unique<Unordered>(std::move(device), left_out);
      };
      Prepared p = prepare_steps(Family::Gpt2, keys, 1);
      cuda_double::idle(true);
      train_prepared(p, cuda_options(p), [&](Backend made) {
        made.device = wrap(std::move(made.device));
        return made;
      });
      EXPECT_NE(cuda_double::unordered(), "") << "ranks of one process";
      train_with_nccl(p, {.wrap = wrap});
      // NCCL orders what one communicator carries: the last sum, on the first track, is behind
      // those on the other, and whoever reads it behind all of them.
      const bool sums = std::ranges::count(keys, "sequence_parallel=true") == 0;
      if (!sums || left_out.first == Main) {
        EXPECT_NE(cuda_double::unordered(), "") << "over NCCL";
      }
      cuda_double::idle(false);
    }
  }
}

}  // namespace
}  // namespace rehearse::exec
