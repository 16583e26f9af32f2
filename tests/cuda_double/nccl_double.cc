// The part of NCCL that exec/nccl calls. "Processes" are threads of the test. What real NCCL
// answers with a hang is found here: calls that do not match are an error that names both.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/collectives.h"
#include "tests/cuda_double/device.h"

using rehearse::OpKind;
using rehearse::cuda_double::enqueue;
namespace exec = rehearse::exec;

namespace {

constexpr auto kJoin = std::chrono::seconds(5);

std::int64_t element_bytes(ncclDataType_t type) {
  return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclInt8 ? 1 : 2;
}

struct Call {
  OpKind kind{};
  std::int64_t count = 0;  // as the caller says it
  ncclDataType_t type{};
  bool maximum = false;
  int root = 0;
  void *in = nullptr, *out = nullptr;
  bool same(const Call& other) const {
    return std::tie(kind, count, type, maximum, root) ==
           std::tie(other.kind, other.count, other.type, other.maximum, other.root);
  }
  std::string text() const {
    static const std::map<OpKind, std::string> kNames{{OpKind::AllReduce, "AllReduce"},
                                                      {OpKind::ReduceScatter, "ReduceScatter"},
                                                      {OpKind::AllGather, "AllGather"},
                                                      {OpKind::Broadcast, "Broadcast"},
                                                      {OpKind::Reduce, "Reduce"}};
    return kNames.at(kind) + " of " + std::to_string(count);
  }
};

// All ranks of one communicator.
struct Clique {
  explicit Clique(int n) : size(n) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  std::string failure;  // ends every wait
  struct Slot {
    std::vector<Call> calls;
    std::vector<int> callers;
    bool done = false;
  };
  std::map<std::int64_t, Slot> slots;  // by number of the collective
  struct Message {
    const void* data = nullptr;
    std::size_t bytes = 0;
    bool taken = false;
  };
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail;  // (from, to)
  struct Split {
    std::vector<std::tuple<int, int, int>> asked;  // color, key, rank
    std::map<int, std::shared_ptr<Clique>> made;
  };
  std::map<std::int64_t, Split> splits;

  void fail(const std::string& why) {
    if (failure.empty()) failure = why;
    changed.notify_all();
  }
};

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Clique>> registry;  // by unique id
std::atomic<std::uint64_t> ids{1};

// A send posts its message and waits until it has been taken; a receive takes one.
struct Pending {
  std::function<void()> post, take, wait;
  cudaStream_t stream;
};
thread_local int group_depth = 0;
thread_local std::vector<Pending> group;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  std::int64_t collectives = 0, splits = 0;
  std::atomic<bool> aborted{false};
  std::string last_error;

  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
    clique->changed.wait(lock, [&] { return ready() || aborted || !clique->failure.empty(); });
  }
};

namespace {

void perform(Clique& clique, Clique::Slot& slot) {
  std::vector<exec::Contribution> members(slot.calls.size());
  for (std::size_t k = 0; k < slot.calls.size(); ++k) {
    members[static_cast<std::size_t>(slot.callers[k])] = {slot.calls[k].in, slot.calls[k].out};
  }
  const Call& call = slot.calls.front();
  const bool parted = call.kind == OpKind::ReduceScatter || call.kind == OpKind::AllGather;
  // NCCL names the place of an in-place part by its address.
  const std::int64_t bytes = call.count * element_bytes(call.type);
  for (std::size_t m = 0; m < members.size(); ++m) {
    auto* in = static_cast<std::byte*>(members[m].in);
    auto* out = static_cast<std::byte*>(members[m].out);
    const std::int64_t offset = static_cast<std::int64_t>(m) * bytes;
    if (call.kind == OpKind::ReduceScatter && out == in + offset) members[m].out = in;
    if (call.kind == OpKind::AllGather && in == out + offset) members[m].in = out;
  }
  exec::perform(
      {.kind = call.kind,
       .type = call.type == ncclFloat64 ? exec::ElementType::Float64 : exec::ElementType::Float32,
       .maximum = call.maximum,
       .elements = call.count * (parted ? clique.size : 1),
       .root = call.root,
       .contributions = members});
}

ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const Call& call) {
  if (comm->aborted) return ncclInvalidUsage;
  const std::int64_t number = comm->collectives++;
  enqueue(stream, [comm, number, call] {
    Clique& clique = *comm->clique;
    std::unique_lock lock(clique.mutex);
    if (comm->aborted) return;
    Clique::Slot& slot = clique.slots[number];
    if (!slot.calls.empty() && !slot.calls.front().same(call)) {
      return clique.fail("collective " + std::to_string(number) + " mismatch: rank " +
                         std::to_string(comm->rank) + " calls " + call.text() + ", rank " +
                         std::to_string(slot.callers.front()) + " " + slot.calls.front().text());
    }
    slot.calls.push_back(call);
    slot.callers.push_back(comm->rank);
    if (static_cast<int>(slot.calls.size()) == clique.size) {
      perform(clique, slot);
      slot.done = true;
      clique.changed.notify_all();
      return;
    }
    comm->wait(lock, [&] { return slot.done; });
  });
  return ncclSuccess;
}

ncclResult_t post(Pending pending) {
  if (group_depth > 0) {
    group.push_back(std::move(pending));
    return ncclSuccess;
  }
  enqueue(pending.stream, [p = std::move(pending)] {
    p.post();
    p.take();
    p.wait();
  });
  return ncclSuccess;
}

ncclResult_t join(ncclComm_t* comm, std::shared_ptr<Clique> clique, int rank) {
  auto* made = new ncclComm;
  made->clique = std::move(clique);
  made->rank = rank;
  *comm = made;
  std::unique_lock lock(made->clique->mutex);
  ++made->clique->joined;
  made->clique->changed.notify_all();
  const bool all = made->clique->changed.wait_for(
      lock, kJoin, [&] { return made->clique->joined == made->clique->size; });
  return all ? ncclSuccess : ncclRemoteError;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  const std::uint64_t number = ids.fetch_add(1);
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess       ? "no error"
         : result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "invalid usage";
}
const char* ncclGetLastError(ncclComm_t comm) {
  const std::scoped_lock lock(comm->clique->mutex);
  comm->last_error = comm->clique->failure;
  return comm->last_error.c_str();
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  std::shared_ptr<Clique> clique;
  {
    const std::scoped_lock lock(registry_mutex);
    std::shared_ptr<Clique>& known = registry[std::string(id.internal, sizeof id.internal)];
    if (known == nullptr) known = std::make_shared<Clique>(ranks);
    clique = known;
  }
  return join(comm, clique, rank);
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  Clique& clique = *parent->clique;
  std::shared_ptr<Clique> mine;
  int place = 0;
  {
    std::unique_lock lock(clique.mutex);
    Clique::Split& split = clique.splits[parent->splits++];
    split.asked.emplace_back(color, key, parent->rank);
    clique.changed.notify_all();
    const bool all = clique.changed.wait_for(
        lock, kJoin, [&] { return static_cast<int>(split.asked.size()) == clique.size; });
    if (!all) return ncclRemoteError;
    *made = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    int members = 0;
    for (const auto& [c, k, r] : split.asked) {
      if (c != color) continue;
      ++members;
      if (std::tie(k, r) < std::tie(key, parent->rank)) ++place;
    }
    std::shared_ptr<Clique>& of_color = split.made[color];
    if (of_color == nullptr) of_color = std::make_shared<Clique>(members);
    mine = of_color;
  }
  return join(made, mine, place);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::scoped_lock lock(comm->clique->mutex);
  *state = comm->clique->failure.empty() ? ncclSuccess : ncclInvalidUsage;
  return ncclSuccess;
}
// Wakes what waits in this communicator. Leaks: work that is still queued may look at it.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  const std::scoped_lock lock(comm->clique->mutex);
  comm->clique->changed.notify_all();
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {OpKind::AllReduce, static_cast<std::int64_t>(count), type, op == ncclMax, 0,
                     const_cast<void*>(in), out});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {OpKind::ReduceScatter, static_cast<std::int64_t>(count), type, false, 0,
                     const_cast<void*>(in), out});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {OpKind::AllGather, static_cast<std::int64_t>(count), type, false, 0,
                     const_cast<void*>(in), out});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {OpKind::Broadcast, static_cast<std::int64_t>(count), type, false, root,
                     const_cast<void*>(in), out});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {OpKind::Reduce, static_cast<std::int64_t>(count), type, false, root,
                     const_cast<void*>(in), out});
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (comm->aborted) return ncclInvalidUsage;
  const auto message = std::make_shared<Clique::Message>();
  message->data = data;
  message->bytes = count * static_cast<std::size_t>(element_bytes(type));
  return post({[=] {
                 const std::scoped_lock lock(comm->clique->mutex);
                 comm->clique->mail[{comm->rank, peer}].push_back(message);
                 comm->clique->changed.notify_all();
               },
               [] {},
               [=] {
                 std::unique_lock lock(comm->clique->mutex);
                 comm->wait(lock, [&] { return message->taken; });
               },
               stream});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (comm->aborted) return ncclInvalidUsage;
  const std::size_t bytes = count * static_cast<std::size_t>(element_bytes(type));
  return post({[] {},
               [=] {
                 std::unique_lock lock(comm->clique->mutex);
                 auto& box = comm->clique->mail[{peer, comm->rank}];
                 comm->wait(lock, [&] { return !box.empty(); });
                 if (box.empty()) return;
                 const std::shared_ptr<Clique::Message> message = box.front();
                 box.pop_front();
                 if (message->bytes != bytes) {
                   return comm->clique->fail("rank " + std::to_string(comm->rank) + " receives " +
                                             std::to_string(bytes) + " bytes, rank " +
                                             std::to_string(peer) + " sends " +
                                             std::to_string(message->bytes));
                 }
                 std::memcpy(data, message->data, bytes);
                 message->taken = true;
                 comm->clique->changed.notify_all();
               },
               [] {}, stream});
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
// One piece of work: all are posted, all messages taken, before any is waited for.
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group.empty()) return ncclSuccess;
  const cudaStream_t stream = group.front().stream;
  enqueue(stream, [all = std::exchange(group, {})] {
    for (const Pending& p : all) p.post();
    for (const Pending& p : all) p.take();
    for (const Pending& p : all) p.wait();
  });
  return ncclSuccess;
}

}  // extern "C"
