// SPDX-License-Identifier: Apache-2.0
// NCCL between processes that hold one rank each: a communicator per group instance, split from
// one, and one for transfers; every call is enqueued on its lane's stream and returns.
//
// Communicators are non-blocking, so that a dead partner is an error and never a hang: while the
// host waits for the end of a step it polls them, and one failure aborts them all.
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "exec/cuda/make.h"

namespace rehearse::exec::cuda {
namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t nccl_type(ElementType type) {
  switch (type) {
    case ElementType::Float64:
      return ncclFloat64;
    case ElementType::BFloat16:
      return ncclBfloat16;
    case ElementType::Float32:
      break;
  }
  return ncclFloat32;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(StreamSource& streams, const NcclOptions& options)
      : streams_(streams),
        process_(options.process),
        processes_(options.processes),
        timeout_s_(options.timeout_s) {}

  // Stuck kernels of a failed run end only by an abort; a sound communicator is destroyed.
  ~NcclCommunicator() override {
    streams_.watch({});
    for (ncclComm_t comm : all_) {
      if (broken_.empty() && streams_.healthy()) {
        ncclCommDestroy(comm);
      } else {
        ncclCommAbort(comm);
      }
    }
  }

  Result<> connect(const NcclOptions& options) {
    ncclUniqueId id{};
    if (process_ == 0) {
      if (const ncclResult_t got = ncclGetUniqueId(&id); got != ncclSuccess)
        return error("ncclGetUniqueId", got);
    }
    const Result<std::string> shared = options.share(std::string(id.internal, sizeof id.internal));
    if (!shared) return shared.error();
    if (shared.value().size() != sizeof id.internal)
      return Error{"NCCL: the id that process 0 shared is not one"};
    std::memcpy(id.internal, shared.value().data(), sizeof id.internal);

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Result<> done = add(&world_, [&] {
      return ncclCommInitRankConfig(&world_, processes_, id, process_, &config);
    });
    if (!done) return done;
    done =
        add(&transfers_, [&] { return ncclCommSplit(world_, 0, process_, &transfers_, &config); });
    if (!done) return done;
    const GroupInstances& groups = *options.groups;
    of_instance_.assign(groups.ranks.size(), nullptr);
    for (const auto& group : groups.of) {
      const GroupInstances::Place place = group[static_cast<std::size_t>(process_)];
      const bool in = place.instance >= 0;
      ncclComm_t made = nullptr;
      done = add(&made, [&] {
        return ncclCommSplit(world_, in ? place.instance : NCCL_SPLIT_NOCOLOR,
                             in ? place.member : 0, &made, &config);
      });
      if (!done) return done;
      if (in) of_instance_[static_cast<std::size_t>(place.instance)] = made;
    }
    return connect_edges(options);
  }

  // Polled while the host waits: the first thing that went wrong, and then all are aborted.
  std::string failed() {
    if (!broken_.empty()) return broken_;
    for (ncclComm_t comm : all_) {
      ncclResult_t state = ncclSuccess;
      ncclCommGetAsyncError(comm, &state);
      if (state == ncclSuccess || state == ncclInProgress) continue;
      fail(state, comm);
      break;
    }
    if (broken_.empty()) return {};
    for (ncclComm_t comm : all_) ncclCommAbort(comm);
    all_.clear();
    return broken_;
  }

  std::string_view name() const override { return "nccl"; }
  std::int32_t process() const override { return process_; }
  std::int32_t processes() const override { return processes_; }

  bool timed_out() const override { return !broken_.empty() || streams_.timed_out(); }

  void collective(const Exchange& e, Done done) override {
    if (!broken_.empty()) return done(Error{broken_});
    std::size_t me = 0;
    while (e.ranks[me] != process_) ++me;
    const ncclComm_t comm = of_instance_[static_cast<std::size_t>(e.instance)];
    const cudaStream_t stream = streams_.stream(e.lanes[me]);
    const ncclDataType_t type = nccl_type(e.type);
    const auto members = static_cast<std::int64_t>(e.ranks.size());
    const auto whole = static_cast<std::size_t>(e.elements);
    const auto part = static_cast<std::size_t>(e.elements / members);
    const std::int64_t part_bytes = static_cast<std::int64_t>(part) * exec::bytes_of(e.type);
    auto* in = static_cast<std::byte*>(e.contributions[me].in);
    auto* out = static_cast<std::byte*>(e.contributions[me].out);
    const auto at = [&](std::byte* array, std::size_t m) {
      return array + static_cast<std::int64_t>(m) * part_bytes;
    };
    const bool root = static_cast<std::size_t>(e.root) == me;
    switch (e.kind) {
      case OpKind::AllReduce:
        check(ncclAllReduce(in, out, whole, type, e.maximum ? ncclMax : ncclSum, comm, stream),
              comm);
        break;
      case OpKind::ReduceScatter:
        check(
            ncclReduceScatter(in, in == out ? at(out, me) : out, part, type, ncclSum, comm, stream),
            comm);
        break;
      case OpKind::AllGather:
      case OpKind::Unshard:
        check(ncclAllGather(in == out ? at(in, me) : in, out, part, type, comm, stream), comm);
        break;
      case OpKind::Broadcast:
        check(ncclBroadcast(in, out, whole, type, e.root, comm, stream), comm);
        break;
      case OpKind::Reduce:
        check(ncclReduce(in, out, whole, type, ncclSum, e.root, comm, stream), comm);
        break;
      case OpKind::Gather:
      case OpKind::Scatter:
      case OpKind::AllToAll: {
        check(ncclGroupStart(), comm);
        for (std::size_t m = 0; m < e.ranks.size(); ++m) {
          const auto peer = static_cast<int>(m);
          const bool to_peer =
              e.kind == OpKind::AllToAll ||
              (e.kind == OpKind::Gather ? m == static_cast<std::size_t>(e.root) : root);
          const bool from_peer =
              e.kind == OpKind::AllToAll ||
              (e.kind == OpKind::Gather ? root : m == static_cast<std::size_t>(e.root));
          if (to_peer)
            check(
                ncclSend(e.kind == OpKind::Gather ? in : at(in, m), part, type, peer, comm, stream),
                comm);
          if (from_peer)
            check(ncclRecv(e.kind == OpKind::Scatter ? out : at(out, m), part, type, peer, comm,
                           stream),
                  comm);
        }
        check(ncclGroupEnd(), comm);
        break;
      }
      case OpKind::Send: {  // round the ring
        const std::size_t next = (me + 1) % e.ranks.size();
        const std::size_t last = (me + e.ranks.size() - 1) % e.ranks.size();
        check(ncclGroupStart(), comm);
        check(ncclSend(in, whole, type, static_cast<int>(next), comm, stream), comm);
        check(ncclRecv(out, whole, type, static_cast<int>(last), comm, stream), comm);
        check(ncclGroupEnd(), comm);
        break;
      }
      default:
        broken_ = "NCCL: no such exchange";
        break;
    }
    finish(done);
  }
  void send(Lane from, std::int32_t to_rank, std::uint64_t, std::span<const std::byte> data,
            Done done) override {
    if (broken_.empty()) {
      check(
          ncclSend(data.data(), data.size(), ncclInt8, to_rank, transfers_, streams_.stream(from)),
          transfers_);
    }
    finish(done);
  }
  void receive(Lane to, std::int32_t from_rank, std::uint64_t, std::span<std::byte> data,
               Done done) override {
    if (broken_.empty()) {
      check(
          ncclRecv(data.data(), data.size(), ncclInt8, from_rank, transfers_, streams_.stream(to)),
          transfers_);
    }
    finish(done);
  }

 private:
  static Error error(std::string_view what, ncclResult_t result) {
    return Error{"NCCL: " + std::string(what) + ": " + ncclGetErrorString(result)};
  }

  // A communicator comes to be while other processes do the same. Until then world_ is under way
  // and takes no other call, whatever this one returned: ncclCommSplit of NCCL 2.28.9 says success
  // at once (init.cc: it drops its group's ncclInProgress), and writes *comm only in the end.
  template <class Make>
  Result<> add(ncclComm_t* comm, const Make& make) {
    ncclResult_t result = make();
    if (result == ncclSuccess || result == ncclInProgress) result = settle(world_);
    if (result != ncclSuccess) return error("cannot connect to the other processes", result);
    if (*comm != nullptr) all_.push_back(*comm);
    return {};
  }
  // Until a non-blocking call has been carried out, or the timeout.
  ncclResult_t settle(ncclComm_t comm) const {
    const Clock::time_point begin = Clock::now();
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess)
        return asked;
      if (std::chrono::duration<double>(Clock::now() - begin).count() > timeout_s_)
        return ncclRemoteError;
      if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return state;
  }
  void fail(ncclResult_t result, ncclComm_t comm) {
    if (!broken_.empty()) return;
    broken_ = std::string("NCCL: ") + ncclGetErrorString(result);
    const char* more = ncclGetLastError(comm);
    if (more != nullptr && *more != '\0') broken_ += std::string(" (") + more + ")";
  }
  void check(ncclResult_t result, ncclComm_t comm) {
    if (result == ncclInProgress) result = settle(comm);
    if (result != ncclSuccess) fail(result, comm);
  }
  void finish(const Done& done) const {
    done(broken_.empty() ? Result<>() : Result<>(Error{broken_}));
  }

  // A byte over every edge, one after another in the same order everywhere: connections that NCCL
  // makes lazily are made before step 0, and in no order that could block.
  Result<> connect_edges(const NcclOptions& options) {
    void* byte = nullptr;
    if (cudaMalloc(&byte, 1) != cudaSuccess)
      return Error{"no GPU memory to connect to other processes"};
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (const auto& [from, to] : options.edges) {
      if (from == process_) check(ncclSend(byte, 1, ncclInt8, to, transfers_, stream), transfers_);
      if (to == process_) check(ncclRecv(byte, 1, ncclInt8, from, transfers_, stream), transfers_);
      if (!broken_.empty()) break;
    }
    const Clock::time_point begin = Clock::now();
    while (broken_.empty() && cudaStreamQuery(stream) == cudaErrorNotReady) {
      if (std::string why = failed(); !why.empty()) break;
      if (std::chrono::duration<double>(Clock::now() - begin).count() > timeout_s_) {
        broken_ = "NCCL: connecting to the other processes timed out";
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (!broken_.empty()) return Error{broken_};
    cudaStreamDestroy(stream);
    cudaFree(byte);
    return {};
  }

  StreamSource& streams_;
  std::int32_t process_, processes_;
  double timeout_s_;
  ncclComm_t world_ = nullptr, transfers_ = nullptr;
  std::vector<ncclComm_t> of_instance_;
  std::vector<ncclComm_t> all_;  // in the order in which they were made
  std::string broken_;           // the first error; afterwards nothing is issued
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_nccl(Device& device, const NcclOptions& options) {
  auto* streams = dynamic_cast<StreamSource*>(&device);
  if (streams == nullptr) return Error{"NCCL needs the CUDA backend"};
  auto made = std::make_unique<NcclCommunicator>(*streams, options);
  const Result<> connected = made->connect(options);
  if (!connected) return connected.error();
  streams->watch([communicator = made.get()] { return communicator->failed(); });
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace rehearse::exec::cuda
