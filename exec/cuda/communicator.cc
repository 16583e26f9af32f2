// SPDX-License-Identifier: Apache-2.0
// NCCL between processes that hold one rank each: a communicator per group instance and one per
// pair of ranks and direction of transfers, split from one; every call is enqueued on its lane's
// stream and returns.
//
// Only the one that the others are split from is non-blocking: coming to be, it waits for
// everybody. The others are blocking, because NCCL 2.23 to 2.30 begin a thread for every call of
// one that is not (group.cc). Whatever does not come is the watchdog's: it aborts all of them at
// once.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "exec/cuda/make.h"
#include "exec/cuda/nccl_collective.h"

namespace rehearse::exec::cuda {
namespace {

using Edge = std::pair<std::int32_t, std::int32_t>;  // transfers, from a rank to a rank

// Blocks of a transfer's kernel, which hold processors while they wait for the other end. Our
// choice, not measured; NCCL_MAX_CTAS is another.
constexpr int kTransferBlocks = 8;
constexpr auto kPoll = std::chrono::microseconds(50);
// A call that was told to end, until it returns.
constexpr auto kReturn = std::chrono::seconds(5);

ncclDataType_t nccl_type(ElementType type) {
  switch (type) {
    case ElementType::Float64:
      return ncclFloat64;
    case ElementType::BFloat16:
      return ncclBfloat16;
    case ElementType::Float16:
      return ncclFloat16;
    case ElementType::Float32:
      break;
  }
  return ncclFloat32;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(StreamSource& streams, const NcclOptions& options)
      : streams_(streams),
        dog_(streams.watchdog()),
        process_(options.process),
        processes_(options.processes) {
    dog_.watch({.failed = [this] { return asynchronous_error(); }, .abort = [this] { abort(); }});
  }

  // A sound communicator is destroyed, the others were aborted.
  ~NcclCommunicator() override {
    if (dog_.dismiss()) return;
    for (ncclComm_t comm : all_) ncclCommDestroy(comm);
  }

  Result<> connect(const NcclOptions& options) {
    ncclUniqueId id{};
    if (process_ == 0) {
      if (const ncclResult_t got = ncclGetUniqueId(&id); got != ncclSuccess)
        return Error{said(got, "ncclGetUniqueId")};
    }
    const std::int64_t before = free_bytes();
    const Result<std::string> shared = options.share(std::string(id.internal, sizeof id.internal));
    if (!shared) return shared.error();
    if (shared.value().size() != sizeof id.internal)
      return Error{"NCCL: the id that process 0 shared is not one"};
    std::memcpy(id.internal, shared.value().data(), sizeof id.internal);

    dog_.begin([](double seconds) {
      return "NCCL: cannot connect to the other processes: nothing goes on for " +
             std::to_string(static_cast<std::int64_t>(seconds)) + " s";
    });
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    enter(nullptr,
          [&] { return ncclCommInitRankConfig(&world_, processes_, id, process_, &config); });
    keep(world_);  // it can be aborted before it is whole
    settle(world_);
    const GroupInstances& groups = *options.groups;
    of_instance_.assign(groups.ranks.size(), nullptr);
    for (const auto& group : groups.of) {
      const GroupInstances::Place place = group[static_cast<std::size_t>(process_)];
      const bool in = place.instance >= 0;
      const ncclComm_t made =
          split(in ? place.instance : NCCL_SPLIT_NOCOLOR, in ? place.member : 0);
      if (in) of_instance_[static_cast<std::size_t>(place.instance)] = made;
    }
    split_edges(options.edges);
    if (dog_.failure().empty()) connect_all(options);
    if (const std::string why = dog_.failure(); !why.empty()) return Error{why};
    dog_.end();
    streams_.taken_by_communicators(before - free_bytes());
    return {};
  }

  std::string_view name() const override { return "nccl"; }
  std::int32_t process() const override { return process_; }
  std::int32_t processes() const override { return processes_; }

  bool timed_out() const override { return !dog_.failure().empty(); }

  void collective(const Exchange& e, Done done) override {
    std::size_t me = 0;
    while (e.ranks[me] != process_) ++me;
    const ncclComm_t comm = of_instance_[static_cast<std::size_t>(e.instance)];
    const std::int64_t part = e.elements / std::ssize(e.ranks);
    const NcclCollective made{
        .kind = e.kind,
        .maximum = e.maximum,
        .type = nccl_type(e.type),
        .part = static_cast<std::size_t>(part),
        .whole = static_cast<std::size_t>(e.elements),
        .pitch = (e.pitch > 0 ? e.pitch : part) * exec::bytes_of(e.type),
        .apart = e.pitch > 0,
        .root = e.root,
        .members = static_cast<int>(e.ranks.size()),
        .me = static_cast<int>(me),
        .in = static_cast<std::byte*>(e.contributions[me].in),
        .out = static_cast<std::byte*>(e.contributions[me].out),
    };
    call(comm, [&] { return issue(made, comm, streams_.stream(e.lanes[me])); });
    finish(done);
  }
  void send(Lane from, std::int32_t to_rank, std::uint64_t, std::span<const std::byte> data,
            Done done) override {
    const ncclComm_t edge = edges_.at({process_, to_rank});
    call(edge, [&] {
      return ncclSend(data.data(), data.size(), ncclInt8, 1, edge, streams_.stream(from));
    });
    finish(done);
  }
  void receive(Lane to, std::int32_t from_rank, std::uint64_t, std::span<std::byte> data,
               Done done) override {
    const ncclComm_t edge = edges_.at({from_rank, process_});
    call(edge, [&] {
      return ncclRecv(data.data(), data.size(), ncclInt8, 0, edge, streams_.stream(to));
    });
    finish(done);
  }

 private:
  // What communicators that were lost may still write to is kept to the process's end, which is
  // near: a stream that is stuck cannot be waited for, and freeing waits.
  static void keep_to_the_end(void* array, cudaStream_t stream) {
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::pair<void*, cudaStream_t>>;
    const std::scoped_lock lock(mutex);
    kept.emplace_back(array, stream);
  }
  static std::int64_t free_bytes() {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return static_cast<std::int64_t>(free);
  }
  static bool good(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
  }
  static std::string said(ncclResult_t result, const std::string& more) {
    return std::string("NCCL: ") + ncclGetErrorString(result) +
           (more.empty() ? more : " (" + more + ")");
  }
  static std::string said(ncclResult_t result, ncclComm_t comm) {
    const char* more = comm == nullptr ? nullptr : ncclGetLastError(comm);
    return said(result, std::string(more == nullptr ? "" : more));
  }

  // By the watchdog: the first communicator that reports an error.
  std::string asynchronous_error() {
    const std::scoped_lock lock(list_);
    for (ncclComm_t comm : all_) {
      ncclResult_t state = ncclSuccess;
      ncclCommGetAsyncError(comm, &state);
      if (!good(state)) return said(state, comm);
    }
    return {};
  }
  // By the watchdog. Kernels of one communicator may wait behind those of another, so that aborting
  // one after the other could wait for ever: in a group the first call of each only tells its
  // kernels, and a call that the host is in, to end. What they use is freed when the group ends:
  // not before the host is out of its call.
  void abort() {
    std::vector<ncclComm_t> all;
    {
      const std::scoped_lock lock(list_);
      all = all_;
    }
    ncclGroupStart();
    for (auto comm = all.rbegin(); comm != all.rend(); ++comm) ncclCommAbort(*comm);
    if (!calls_.try_lock_for(kReturn)) return;
    ncclGroupEnd();
    calls_.unlock();
  }

  // A call of the host, unless something has failed.
  template <class Make>
  ncclResult_t enter(ncclComm_t comm, const Make& make) {
    const std::scoped_lock lock(calls_);
    if (!dog_.failure().empty()) return ncclRemoteError;
    const ncclResult_t result = make();
    if (!good(result)) dog_.fail(said(result, comm));
    return result;
  }
  template <class Make>
  void call(ncclComm_t comm, const Make& make) {
    if (enter(comm, make) == ncclInProgress) settle(comm);
    streams_.progressed();
  }
  void keep(ncclComm_t comm) {
    const std::scoped_lock lock(list_);
    if (comm != nullptr) all_.push_back(comm);
  }
  // Until a communicator is no longer under way, which takes no other call meanwhile.
  void settle(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (true) {
      enter(comm, [&] {
        ncclCommGetAsyncError(comm, &state);
        return state;
      });
      if (state != ncclInProgress || !dog_.failure().empty()) return;
      std::this_thread::sleep_for(kPoll);
    }
  }
  // Null for who is in none of the parts. ncclCommSplit of NCCL 2.28.9 returns success while world_
  // is under way (init.cc: it drops its group's ncclInProgress), and writes `made` in the end.
  ncclComm_t split(int color, int key, int blocks = NCCL_CONFIG_UNDEF_INT) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = blocks;
    ncclComm_t made = nullptr;
    call(world_, [&] { return ncclCommSplit(world_, color, key, &made, &config); });
    settle(world_);
    keep(made);
    return made;
  }
  void finish(const Done& done) const {
    const std::string why = dog_.failure();
    done(why.empty() ? Result<>() : Result<>(Error{why}));
  }

  // In a round no rank has more than one edge: the communicators of a round are one split, and no
  // order of rounds could block.
  void split_edges(const std::vector<Edge>& edges) {
    std::vector<std::set<std::int32_t>> taken;
    for (const auto& [from, to] : edges) {
      std::size_t round = 0;
      while (round < taken.size() && (taken[round].contains(from) || taken[round].contains(to))) {
        ++round;
      }
      taken.resize(std::max(taken.size(), round + 1));
      rounds_.resize(taken.size());
      taken[round].insert({from, to});
      rounds_[round].emplace_back(from, to);
    }
    for (const auto& round : rounds_) {
      const auto mine = std::ranges::find_if(round, [this](const Edge& edge) {
        return edge.first == process_ || edge.second == process_;
      });
      const bool in = mine != round.end();
      const ncclComm_t made =
          split(in ? static_cast<int>(mine - round.begin()) : NCCL_SPLIT_NOCOLOR,
                in && mine->second == process_ ? 1 : 0, kTransferBlocks);
      if (in) edges_[*mine] = made;
    }
  }

  // What NCCL connects and allocates when it is first asked, it does before step 0 and before the
  // arenas are there, in one order everywhere: a byte over every edge; over every group sums,
  // shards and gathers, as it chooses them for a small and for the largest array; and of what else
  // the steps will exchange the smallest.
  void connect_all(const NcclOptions& options) {
    const auto largest =
        static_cast<std::size_t>(std::max<std::int64_t>(options.largest_elements, processes_));
    const auto room = std::max(largest, 2 * static_cast<std::size_t>(processes_));
    void* array = nullptr;
    cudaStream_t stream = nullptr;
    const auto checked = [&](cudaError_t error, const char* what) {
      if (error == cudaSuccess) return true;
      dog_.fail(std::string("NCCL: cannot connect to the other processes: ") + what + ": " +
                cudaGetErrorString(error));
      return false;
    };
    if (!checked(cudaMalloc(&array, sizeof(float) * room), "cudaMalloc")) return;
    if (!checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate")) {
      cudaFree(array);
      return;
    }
    for (const auto& round : rounds_) {
      for (const Edge& edge : round) {
        const auto found = edges_.find(edge);
        if (found == edges_.end()) continue;
        const ncclComm_t comm = found->second;
        call(comm, [&, from = edge.first] {
          return from == process_ ? ncclSend(array, 1, ncclInt8, 1, comm, stream)
                                  : ncclRecv(array, 1, ncclInt8, 0, comm, stream);
        });
      }
    }
    auto* const begin = static_cast<std::byte*>(array);
    // In place where that is possible.
    const auto meet = [&](std::int32_t group, OpKind kind, bool apart, std::size_t part) {
      const GroupInstances& groups = *options.groups;
      const GroupInstances::Place place =
          groups.of[static_cast<std::size_t>(group)][static_cast<std::size_t>(process_)];
      if (place.instance < 0) return;
      const auto instance = static_cast<std::size_t>(place.instance);
      const std::size_t members = groups.ranks[instance].size();
      const bool two = kind == OpKind::Send || kind == OpKind::AllToAll || kind == OpKind::Gather ||
                       kind == OpKind::Scatter;
      const ncclComm_t comm = of_instance_[instance];
      const NcclCollective made{
          .kind = kind,
          .type = ncclFloat32,
          .part = part,
          .whole = part * members,
          .pitch = static_cast<std::int64_t>(sizeof(float) * part),
          .apart = apart,
          .members = static_cast<int>(members),
          .me = place.member,
          .in = begin,
          .out = two ? begin + sizeof(float) * part * members : begin,
      };
      call(comm, [&] { return issue(made, comm, stream); });
    };
    for (std::int32_t g = 0; g < std::ssize(options.groups->of); ++g) {
      const GroupInstances::Place place =
          options.groups->of[static_cast<std::size_t>(g)][static_cast<std::size_t>(process_)];
      if (place.instance < 0) continue;
      const std::size_t part =
          largest / options.groups->ranks[static_cast<std::size_t>(place.instance)].size();
      meet(g, OpKind::AllReduce, false, 1);
      for (const OpKind kind : {OpKind::AllReduce, OpKind::ReduceScatter, OpKind::AllGather}) {
        meet(g, kind, false, part);
      }
    }
    for (const Meeting& met : options.meetings) meet(met.group, met.kind, met.apart, 1);
    cudaError_t state = cudaErrorNotReady;
    while (state == cudaErrorNotReady && dog_.failure().empty()) {
      state = cudaStreamQuery(stream);
      if (state == cudaErrorNotReady) std::this_thread::sleep_for(kPoll);
    }
    if (!dog_.failure().empty() || !checked(state, "cudaStreamQuery")) {
      keep_to_the_end(array, stream);
      return;
    }
    cudaStreamDestroy(stream);
    cudaFree(array);
  }

  StreamSource& streams_;
  Watchdog& dog_;
  std::int32_t process_, processes_;
  ncclComm_t world_ = nullptr;
  std::vector<ncclComm_t> of_instance_;
  std::vector<std::vector<Edge>> rounds_;  // all edges
  std::map<Edge, ncclComm_t> edges_;       // of this process
  std::timed_mutex calls_;                 // the host is inside NCCL
  std::mutex list_;                        // of all_
  std::vector<ncclComm_t> all_;            // in the order in which they were made
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_nccl(Device& device, const NcclOptions& options) {
  auto* streams = dynamic_cast<StreamSource*>(&device);
  if (streams == nullptr) return Error{"NCCL needs the CUDA backend"};
  auto made = std::make_unique<NcclCommunicator>(*streams, options);
  const Result<> connected = made->connect(options);
  if (!connected) return connected.error();
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace rehearse::exec::cuda
