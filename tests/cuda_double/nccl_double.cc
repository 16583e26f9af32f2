// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that exec/cuda calls, between threads or processes of one machine: what ranks
// tell each other lies in files of a folder that the unique id names. What real NCCL answers with a
// hang is found here: calls that do not match are an error that names both. What it answers with an
// illegal address, arrays that no kernel reaches, is refused.
//
// A group of collectives is one kernel, as a group of sends and receives is: nobody has a result
// before all have brought everything. What a kind of collective connects is its own.
//
// A non-blocking communicator is under way after a call as NCCL 2.28.9's is: what is asked of it
// meanwhile is an invalid argument (init.cc, ncclCommEnsureReady), and ncclCommSplit returns
// success before it has split (the same file: it drops the ncclInProgress of its group).
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/cpu/collectives.h"
#include "tests/cuda_double/device.h"

using rehearse::OpKind;
using rehearse::cuda_double::can_reach;
using rehearse::cuda_double::enqueue;
using rehearse::cuda_double::Touched;
namespace exec = rehearse::exec;

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::microseconds(50);
// What NCCL's own thread takes for a call, and to begin with a new communicator.
constexpr auto kCall = std::chrono::microseconds(100);
constexpr auto kBegin = std::chrono::milliseconds(2);

std::int64_t element_bytes(ncclDataType_t type) {
  return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclInt8 ? 1 : 2;
}

exec::ElementType element_of(ncclDataType_t type) {
  using enum exec::ElementType;
  return type == ncclFloat64    ? Float64
         : type == ncclBfloat16 ? BFloat16
         : type == ncclFloat16  ? Float16
                                : Float32;
}

// What a rank calls, as it stands before its data in a file.
struct Header {
  OpKind kind{};
  ncclDataType_t type{};
  std::int32_t maximum = 0, root = 0;
  std::int64_t count = 0;  // as the caller says it

  bool same(const Header& other) const {
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
  bool parted() const { return kind == OpKind::ReduceScatter || kind == OpKind::AllGather; }
  // Of what a member brings and gets, among `size`.
  std::size_t bytes_in(int size) const {
    return static_cast<std::size_t>(count * element_bytes(type) *
                                    (kind == OpKind::ReduceScatter ? size : 1));
  }
  std::size_t bytes_out(int size) const {
    return static_cast<std::size_t>(count * element_bytes(type) *
                                    (kind == OpKind::AllGather ? size : 1));
  }
};

using Bytes = std::vector<char>;

// Complete when it has its name.
void post(const std::string& path, const void* head, std::size_t head_bytes, const void* data,
          std::size_t bytes) {
  static std::atomic<std::uint64_t> number{0};
  const std::string unfinished =
      path + "~" + std::to_string(getpid()) + "_" + std::to_string(number.fetch_add(1));
  std::ofstream file(unfinished, std::ios::binary);
  file.write(static_cast<const char*>(head), static_cast<std::streamsize>(head_bytes));
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  file.close();
  std::error_code ignored;
  std::filesystem::rename(unfinished, path, ignored);
}

Bytes contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool there(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

struct Pending;
thread_local int group_depth = 0;
thread_local std::vector<Pending> group;
thread_local std::vector<ncclComm_t> group_aborts;

// Two files that say that the two ends of something to be connected are there.
struct Ends {
  std::string mine;
  std::vector<std::string> others;
};

// A send posts its message and waits until it has been taken; a receive takes one. A collective
// posts what its member brings, takes what all bring, and has its result in the end.
struct Pending {
  ncclComm_t comm;
  Ends ends;
  std::function<void()> post, take, wait;
  cudaStream_t stream;
  Touched touched;
  std::int64_t collective = -1;  // its number; -1: it is none
};

thread_local int connected_ends = 0;
std::atomic<int> threaded_calls{0};

}  // namespace

struct ncclComm {
  std::string prefix;  // of its files
  int size = 1, rank = 0;
  std::int64_t collectives = 0, splits = 0;
  std::int64_t kept = 0;  // the first collective whose file is still there; by its kernels
  std::map<int, std::int64_t> sent, received;  // messages, by peer
  std::atomic<bool> aborted{false};
  std::mutex mutex;
  std::string failure, last_error;
  bool blocking = true;
  std::atomic<bool> making{false};  // an initialisation or a split, by `maker`
  std::jthread maker;
  std::atomic<Clock::time_point> called{};  // a call's end
  std::set<std::string> connected;
  cudaEvent_t last = nullptr;  // behind its last kernel

  ~ncclComm() {
    if (maker.joinable()) maker.join();
    if (last == nullptr) return;
    cudaEventSynchronize(last);
    cudaEventDestroy(last);
  }
  bool under_way() const { return making || Clock::now() < called.load(); }
  // May it be asked for something?
  ncclResult_t ready() const { return under_way() ? ncclInvalidArgument : ncclSuccess; }
  // A call is made: what it returns.
  ncclResult_t call() {
    if (blocking) return ncclSuccess;
    called = Clock::now() + kCall;
    return ncclInProgress;
  }
  // `made` comes to be.
  template <class Make>
  ncclResult_t make(const Make& made) {
    if (blocking) return made();
    making = true;
    maker = std::jthread([this, made] {
      std::this_thread::sleep_for(kBegin);
      if (made() != ncclSuccess) fail("a partner does not come");
      making = false;
    });
    return ncclInProgress;
  }
  // What is new of it is connected.
  ncclResult_t connect(const std::vector<Ends>& all) {
    std::vector<std::string> awaited;
    for (const Ends& ends : all) {
      if (!connected.insert(ends.mine).second) continue;
      ++connected_ends;
      post(ends.mine, nullptr, 0, nullptr, 0);
      awaited.insert(awaited.end(), ends.others.begin(), ends.others.end());
    }
    if (awaited.empty()) return ncclSuccess;
    return make([this, awaited] {
      const bool come = wait([&] { return std::ranges::all_of(awaited, there); });
      return come ? ncclSuccess : ncclRemoteError;
    });
  }
  void launch(cudaStream_t stream, Touched touched, std::function<void()> kernel) {
    if (last == nullptr) cudaEventCreate(&last);
    cudaStreamWaitEvent(stream, last, 0);
    enqueue(stream, std::move(touched), [this, kernel = std::move(kernel)] {
      if (!aborted) kernel();
    });
    cudaEventRecord(last, stream);
  }

  bool failed() {
    const std::scoped_lock lock(mutex);
    return !failure.empty();
  }
  void fail(const std::string& why) {
    const std::scoped_lock lock(mutex);
    if (failure.empty()) failure = why;
  }
  // Until it is so; false: the communicator was aborted, or has failed.
  template <class Ready>
  bool wait(const Ready& ready) {
    while (!ready()) {
      if (aborted || failed()) return false;
      std::this_thread::sleep_for(kPoll);
    }
    return true;
  }
  std::string collective_of(std::int64_t number, int member) const {
    return prefix + "c" + std::to_string(number) + "_" + std::to_string(member);
  }
  // Everybody has begun with collective `number`: nobody reads what came before its kernel.
  void forget_before(std::int64_t number) {
    for (; kept < number; ++kept) std::filesystem::remove(collective_of(kept, rank));
  }
};

namespace {

// Every member reads what all bring and computes its own part; empty: it has failed.
Bytes result_of(ncclComm& comm, std::int64_t number, const Header& mine) {
  std::vector<Bytes> brought, results;
  for (int m = 0; m < comm.size; ++m) {
    const std::string path = comm.collective_of(number, m);
    if (!comm.wait([&] { return there(path); })) return {};
    brought.push_back(contents(path));
    Header theirs;
    std::memcpy(&theirs, brought.back().data(), sizeof theirs);
    if (!mine.same(theirs)) {
      comm.fail("collective " + std::to_string(number) + " mismatch: rank " +
                std::to_string(comm.rank) + " calls " + mine.text() + ", rank " +
                std::to_string(m) + " " + theirs.text());
      return {};
    }
    results.emplace_back(mine.bytes_out(comm.size));
  }
  std::vector<exec::Contribution> members;
  for (std::size_t m = 0; m < brought.size(); ++m) {
    members.push_back({brought[m].data() + sizeof mine, results[m].data()});
  }
  exec::perform({.kind = mine.kind,
                 .type = element_of(mine.type),
                 .maximum = mine.maximum != 0,
                 .elements = mine.count * (mine.parted() ? comm.size : 1),
                 .root = mine.root,
                 .contributions = members});
  return results[static_cast<std::size_t>(comm.rank)];
}

// One piece of work: all are posted, all messages taken, before any is waited for.
ncclResult_t launch(std::vector<Pending> all) {
  const ncclComm_t comm = all.front().comm;
  const cudaStream_t stream = all.front().stream;
  const std::int64_t first = all.front().collective;
  Touched touched(first < 0 ? "sends and receives" : "collective");
  std::vector<Ends> ends;
  for (const Pending& p : all) {
    touched.all.insert(touched.all.end(), p.touched.all.begin(), p.touched.all.end());
    ends.push_back(p.ends);
  }
  if (!comm->blocking) ++threaded_calls;
  const ncclResult_t connected = comm->connect(ends);
  if (connected != ncclSuccess && connected != ncclInProgress) return connected;
  comm->launch(stream, std::move(touched), [comm, first, all = std::move(all)] {
    for (const Pending& p : all) p.post();
    for (const Pending& p : all) p.take();
    if (!comm->aborted && !comm->failed()) comm->forget_before(first);
    for (const Pending& p : all) p.wait();
  });
  return comm->call();
}

ncclResult_t exchange(Pending pending) {
  if (group_depth > 0) {
    group.push_back(std::move(pending));
    return ncclSuccess;
  }
  return launch({std::move(pending)});
}

ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const Header& call, const void* in,
                        void* out) {
  if (comm->aborted) return ncclInvalidUsage;
  if (comm->ready() != ncclSuccess) return comm->ready();
  if (!can_reach(in, call.bytes_in(comm->size)) || !can_reach(out, call.bytes_out(comm->size))) {
    return ncclInvalidArgument;
  }
  const std::string connection = comm->prefix + "k" + call.text().substr(0, call.text().find(' '));
  Ends ends{connection + std::to_string(comm->rank), {}};
  for (int m = 0; m < comm->size; ++m) ends.others.push_back(connection + std::to_string(m));
  const std::int64_t number = comm->collectives++;
  const bool root = call.root == comm->rank;
  Touched touched("collective");
  if (call.kind != OpKind::Broadcast || root)
    touched.reads(in, static_cast<std::int64_t>(call.bytes_in(comm->size)));
  if (call.kind != OpKind::Reduce || root)
    touched.writes(out, static_cast<std::int64_t>(call.bytes_out(comm->size)));
  const auto result = std::make_shared<Bytes>();
  return exchange({comm, ends,
                   [=] {
                     post(comm->collective_of(number, comm->rank), &call, sizeof call, in,
                          call.bytes_in(comm->size));
                   },
                   [=] { *result = result_of(*comm, number, call); },
                   [=] {
                     if (call.kind == OpKind::Reduce && !root) return;
                     if (!result->empty()) std::memcpy(out, result->data(), result->size());
                   },
                   stream, touched, number});
}

bool blocking(const ncclConfig_t* config) {
  return config == nullptr || config->blocking != 0;
}

// Every member of `parent` says where it goes; `made` stays null for one that goes nowhere.
ncclResult_t split_off(ncclComm_t parent, const std::string& split, int color, int key,
                       bool blocking, ncclComm_t* made) {
  const int mine[] = {color, key};
  post(split + "_" + std::to_string(parent->rank), mine, sizeof mine, nullptr, 0);
  int members = 0, place = 0;
  for (int r = 0; r < parent->size; ++r) {
    const std::string path = split + "_" + std::to_string(r);
    if (!parent->wait([&] { return there(path); })) return ncclRemoteError;
    int theirs[2];
    std::memcpy(theirs, contents(path).data(), sizeof theirs);
    if (theirs[0] != color) continue;
    ++members;
    if (std::tie(theirs[1], r) < std::tie(key, parent->rank)) ++place;
  }
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  const ncclComm_t child = new ncclComm;
  child->prefix = split + "." + std::to_string(color) + ".";
  child->size = members;
  child->rank = place;
  child->blocking = blocking;
  std::atomic_ref(*made).store(child);
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::string folder = std::filesystem::temp_directory_path() / "nccl_double_XXXXXX";
  if (folder.size() + 2 > sizeof id->internal || mkdtemp(folder.data()) == nullptr) {
    return ncclSystemError;
  }
  folder += '/';
  std::memcpy(id->internal, folder.data(), folder.size());
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess           ? "no error"
         : result == ncclRemoteError     ? "remote process exited or there was a network error"
         : result == ncclInvalidArgument ? "invalid argument"
                                         : "invalid usage";
}
const char* ncclGetLastError(ncclComm_t comm) {
  const std::scoped_lock lock(comm->mutex);
  comm->last_error = comm->failure;
  return comm->last_error.c_str();
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = new ncclComm;
  (*comm)->prefix = id.internal;
  (*comm)->size = ranks;
  (*comm)->rank = rank;
  (*comm)->blocking = blocking(config);
  const auto joined = [made = *comm](int r) { return made->prefix + "j" + std::to_string(r); };
  post(joined(rank), nullptr, 0, nullptr, 0);
  return (*comm)->make([=, made = *comm] {
    for (int r = 0; r < ranks; ++r) {
      if (!made->wait([&] { return there(joined(r)); })) return ncclRemoteError;
    }
    return ncclSuccess;
  });
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  if (parent->ready() != ncclSuccess) return parent->ready();
  *made = nullptr;
  const ncclResult_t result =
      parent->make([=, split = parent->prefix + "s" + std::to_string(parent->splits++)] {
        return split_off(parent, split, color, key, blocking(config), made);
      });
  return result == ncclInProgress ? ncclSuccess : result;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->failed() ? ncclInvalidUsage : comm->under_way() ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  if (group_depth > 0) {
    group_aborts.push_back(comm);
  } else {
    delete comm;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->ready() != ncclSuccess) return comm->ready();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {.kind = OpKind::AllReduce,
                     .type = type,
                     .maximum = op == ncclMax ? 1 : 0,
                     .count = static_cast<std::int64_t>(count)},
                    in, out);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return collective(
      comm, stream,
      {.kind = OpKind::ReduceScatter, .type = type, .count = static_cast<std::int64_t>(count)}, in,
      out);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(
      comm, stream,
      {.kind = OpKind::AllGather, .type = type, .count = static_cast<std::int64_t>(count)}, in,
      out);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {.kind = OpKind::Broadcast,
                     .type = type,
                     .root = root,
                     .count = static_cast<std::int64_t>(count)},
                    in, out);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream,
                    {.kind = OpKind::Reduce,
                     .type = type,
                     .root = root,
                     .count = static_cast<std::int64_t>(count)},
                    in, out);
}

// Taken is gone.
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (comm->aborted) return ncclInvalidUsage;
  if (comm->ready() != ncclSuccess) return comm->ready();
  const std::size_t bytes = count * static_cast<std::size_t>(element_bytes(type));
  if (!can_reach(data, bytes)) return ncclInvalidArgument;
  const std::string path = comm->prefix + "m" + std::to_string(comm->rank) + "_" +
                           std::to_string(peer) + "_" + std::to_string(comm->sent[peer]++);
  const std::string ends = std::to_string(comm->rank) + "_" + std::to_string(peer);
  return exchange({comm,
                   {comm->prefix + "ks" + ends, {comm->prefix + "kr" + ends}},
                   [=] { post(path, nullptr, 0, data, bytes); },
                   [] {},
                   [=] { comm->wait([&] { return !there(path); }); },
                   stream,
                   Touched("send").reads(data, static_cast<std::int64_t>(bytes))});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (comm->aborted) return ncclInvalidUsage;
  if (comm->ready() != ncclSuccess) return comm->ready();
  const std::size_t bytes = count * static_cast<std::size_t>(element_bytes(type));
  if (!can_reach(data, bytes)) return ncclInvalidArgument;
  const std::string path = comm->prefix + "m" + std::to_string(peer) + "_" +
                           std::to_string(comm->rank) + "_" +
                           std::to_string(comm->received[peer]++);
  const std::string ends = std::to_string(peer) + "_" + std::to_string(comm->rank);
  return exchange({comm,
                   {comm->prefix + "kr" + ends, {comm->prefix + "ks" + ends}},
                   [] {},
                   [=] {
                     if (!comm->wait([&] { return there(path); })) return;
                     const Bytes message = contents(path);
                     if (message.size() != bytes) {
                       return comm->fail("rank " + std::to_string(comm->rank) + " receives " +
                                         std::to_string(bytes) + " bytes, rank " +
                                         std::to_string(peer) + " sends " +
                                         std::to_string(message.size()));
                     }
                     std::memcpy(data, message.data(), bytes);
                     std::filesystem::remove(path);
                   },
                   [] {},
                   stream,
                   Touched("receive").writes(data, static_cast<std::int64_t>(bytes))});
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  for (ncclComm_t comm : std::exchange(group_aborts, {})) delete comm;
  return group.empty() ? ncclSuccess : launch(std::exchange(group, {}));
}

}  // extern "C"

int rehearse::cuda_double::calls_in_threads() {
  return threaded_calls;
}
int rehearse::cuda_double::connections() {
  return connected_ends;
}
