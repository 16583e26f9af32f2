// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that exec/cuda calls.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/cuda_double/device.h"
#include "tests/cuda_double/order_check.h"

using TimePoint = std::chrono::steady_clock::time_point;
using rehearse::cuda_double::Touched;

namespace {

constexpr int kDevices = 8;
std::atomic<int> devices{kDevices};
constexpr int kOldDriver = 12040;
std::atomic<int> driver_version{kOldDriver};          // that is told when there is no device
std::atomic<size_t> shared_bytes{size_t{227} << 10};  // of a block
constexpr size_t kGraph = size_t{64} << 10;           // that the double says a graph takes
constexpr int kCapability = 9;
constexpr size_t kContext = size_t{300} << 20;  // that the double says it needs for itself
std::atomic<size_t> allocated{0}, pooled{0};    // of what is allocated: freed, and kept by the pool
std::atomic<bool> full{false};
using rehearse::cuda_double::StreamFault;
std::atomic<StreamFault> stream_fault{StreamFault::None};
std::mutex sizes_mutex;
std::map<const void*, size_t> sizes, pinned;  // of the device and of the host, by where they begin
std::atomic<void*> planted_memory{nullptr};   // the next allocation's
std::atomic<std::int64_t> captured{0}, launched{0};  // graphs
std::atomic<int> broken_nth{0}, captures_begun{0};   // captures
std::atomic<rehearse::cuda_double::CaptureFault> broken_by{};
std::atomic<size_t> queue_depth{1024};  // of a stream
std::atomic<bool> idles{false};
std::atomic<int> shake_us{0};
std::atomic<std::uint64_t> shake_seed{0};

thread_local std::chrono::steady_clock::duration spent{0};  // of this stream, beside what it took

// One recording of an event: fires when its stream gets there.
struct Firing {
  std::mutex mutex;
  std::condition_variable changed;
  bool fired = false;
  TimePoint at;
  rehearse::cuda_double::Clock clock;  // of where it was recorded
};

}  // namespace

struct CUevent_st {
  std::shared_ptr<Firing> latest;  // null: never recorded, counts as fired
};

// Captures that this thread has begun: meanwhile it may not allocate or copy at once.
thread_local int capturing = 0;

// A piece of work that is to be issued later.
struct Captured {
  Touched touched;
  std::function<void()> work;
};

struct CUgraph_st {
  std::vector<Captured> work;
  bool broken = false;   // something was asked for that no graph can hold
  bool planted = false;  // break_captures() chose it
};
struct CUgraphExec_st {
  std::vector<Captured> work;
  bool planted = false;
};

struct CUstream_st {
  int priority = 0;
  std::unique_ptr<CUgraph_st> capture;  // null: work is done; by the thread that issues
  rehearse::cuda_double::Timeline timeline;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool busy = false, stopping = false;
  std::thread thread{[this] { run(); }};

  void run() {
    std::mt19937_64 random(shake_seed.fetch_add(1));
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !work.empty(); });
      if (work.empty()) return;
      const std::function<void()> next = std::move(work.front());
      work.pop_front();
      busy = true;
      lock.unlock();
      if (const int most = shake_us.load(); most > 0) {
        std::this_thread::sleep_for(
            std::chrono::microseconds(random() % static_cast<std::uint64_t>(most)));
      }
      next();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  void stop() {
    {
      const std::scoped_lock lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }
};

namespace {

std::mutex streams_mutex;
std::deque<cudaStream_t> streams;  // alive

cudaError_t spoil(cudaStream_t stream) {
  stream->capture->broken = true;
  return cudaErrorStreamCaptureUnsupported;
}

// Does the planted fault strike here?
bool strikes(bool planted, rehearse::cuda_double::CaptureFault here) {
  return planted && broken_by.load() == here;
}

bool inside(const std::map<const void*, size_t>& blocks, const void* at, size_t bytes) {
  auto block = blocks.upper_bound(at);
  if (block == blocks.begin()) return false;
  --block;
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(at) - static_cast<const char*>(block->first));
  return offset + bytes <= block->second;
}

// What the runtime would refuse, and what it would do while the host waits: an asynchronous copy
// goes where its kind says, and what of it lies on the host is pinned.
bool as_said(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const std::scoped_lock lock(sizes_mutex);
  const bool from_host = kind == cudaMemcpyHostToDevice, to_host = kind == cudaMemcpyDeviceToHost;
  return kind != cudaMemcpyDefault && inside(to_host ? pinned : sizes, to, bytes) &&
         inside(from_host ? pinned : sizes, from, bytes);
}

// From memory that is not pinned to the device?
bool is_staged(const void* to, const void* from, size_t bytes) {
  const std::scoped_lock lock(sizes_mutex);
  return inside(sizes, to, bytes) && !inside(sizes, from, bytes) && !inside(pinned, from, bytes);
}

// Memory that nothing of the double has touched; null: there is none.
void* fresh(size_t bytes) {
  void* memory = planted_memory.exchange(nullptr);
  if (memory == nullptr) memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory != nullptr) rehearse::cuda_double::forget(memory, bytes);
  return memory;
}

cudaError_t no_device() {
  // of the command in a test: what a driver that is too old says
  static const bool fails = std::getenv("CUDA_DOUBLE_FAILS") != nullptr;
  return devices.load() > 0 && !fails ? cudaSuccess : cudaErrorInsufficientDriver;
}

}  // namespace

namespace rehearse::cuda_double {

static int put(cudaStream_t stream, Touched touched, std::function<void()> work) {
  if (stream->capture != nullptr) {
    if (strikes(stream->capture->planted, CaptureFault::Inside)) return spoil(stream);
    stream->capture->work.push_back({std::move(touched), std::move(work)});
    return cudaSuccess;
  }
  stream->timeline.issue(touched);
  {
    std::unique_lock lock(stream->mutex);
    stream->changed.wait(lock, [stream] { return stream->work.size() < queue_depth.load(); });
    stream->work.push_back(std::move(work));
  }
  stream->changed.notify_all();
  return cudaSuccess;
}

int enqueue(cudaStream_t stream, Touched touched, std::function<void()> work) {
  return put(stream, std::move(touched),
             idles.load() ? std::function<void()>([] {}) : std::move(work));
}

int enqueue(cudaStream_t stream, std::function<void()> work) {
  return put(stream, Touched("work"), std::move(work));
}

void idle(bool now) {
  idles = now;
}

void set_queue_depth(std::size_t depth) {
  queue_depth = depth;
}

void shake(std::uint64_t seed, int microseconds) {
  shake_seed = seed;
  shake_us = microseconds;
}

GraphCounts graphs() {
  return {captured.load(), launched.load()};
}

void break_captures(int nth, CaptureFault fault) {
  broken_nth = nth;
  captures_begun = 0;
  broken_by = fault;
}

void spend(double seconds) {
  spent += std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}

void break_streams(StreamFault fault) {
  stream_fault = fault;
}

void set_full(bool now) {
  full = now;
}

void set_devices(int count) {
  devices = count;
}

void set_driver(int version) {
  driver_version = version;
}

void set_shared_bytes(std::size_t bytes) {
  shared_bytes = bytes;
}

void hand_out(void* memory) {
  planted_memory = memory;
}

bool can_reach(const void* memory, std::size_t bytes) {
  const std::scoped_lock lock(sizes_mutex);
  return bytes == 0 || inside(sizes, memory, bytes) || inside(pinned, memory, bytes);
}

}  // namespace rehearse::cuda_double

using rehearse::cuda_double::enqueue;
using rehearse::cuda_double::put;
using Fault = rehearse::cuda_double::CaptureFault;

namespace {

// What cudaStreamLegacy stands for.
cudaStream_t legacy() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    cudaStreamCreateWithFlags(&made, cudaStreamDefault);
    return made;
  }();
  return stream;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  static const char* const shown = std::getenv("CUDA_DOUBLE_DEVICES");  // of the command in a test
  if (no_device() == cudaSuccess) *count = shown == nullptr ? devices.load() : std::atoi(shown);
  return no_device();
}
cudaError_t cudaSetDevice(int) {
  return no_device();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "a double, no GPU");
  properties->major = kCapability;
  properties->sharedMemPerBlockOptin = shared_bytes.load();
  return no_device();
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return no_device();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? kCapability
           : attribute == cudaDevAttrMultiProcessorCount  ? 132
                                                          : 0;
  return no_device();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = size_t{1} << 40;
  *free = *total - allocated.load() - kContext;
  return no_device();
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    default:
      return "error of the double";
  }
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = no_device() == cudaSuccess ? 0 : driver_version.load();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, size_t bytes) {
  if (capturing > 0) return cudaErrorStreamCaptureUnsupported;
  if (full.load()) return cudaErrorMemoryAllocation;
  *to = fresh(bytes);
  if (*to == nullptr) return cudaErrorMemoryAllocation;
  // Nobody may rely on zeros; and what a host reads before its kernel has written shows: counts are
  // differences of numbers, here of a million and more.
  for (size_t i = 0; i < (bytes + 3) / 4; ++i) {
    static_cast<std::uint32_t*>(*to)[i] = static_cast<std::uint32_t>(i + 1) * 1'000'003U;
  }
  allocated += bytes;
  const std::scoped_lock lock(sizes_mutex);
  sizes[*to] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  cudaStreamSynchronize(cudaStreamLegacy);
  {
    const std::scoped_lock lock(sizes_mutex);
    allocated -= sizes[memory];
    rehearse::cuda_double::forget(memory, sizes[memory]);
    sizes.erase(memory);
  }
  std::free(memory);
  return cudaSuccess;
}
// The pool keeps what was freed until the host waits for a stream or the device, or trims it:
// events that are only asked do not give it back.
cudaError_t cudaMallocAsync(void** to, size_t bytes, cudaStream_t) {
  return cudaMalloc(to, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  enqueue(stream, [=] {
    const size_t before = allocated.load();
    cudaFree(memory);
    const size_t bytes = before - allocated.load();
    allocated += bytes;
    pooled += bytes;
  });
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  allocated -= pooled.exchange(0);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** to, size_t bytes) {
  *to = fresh(bytes);
  if (*to == nullptr) return cudaErrorMemoryAllocation;
  const std::scoped_lock lock(sizes_mutex);
  pinned[*to] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  {
    const std::scoped_lock lock(sizes_mutex);
    rehearse::cuda_double::forget(memory, pinned[memory]);
    pinned.erase(memory);
  }
  std::free(memory);
  return cudaSuccess;
}
// Returns before it is done, as a copy of what is not pinned does.
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  put(legacy(), Touched("cudaMemset").writes(to, static_cast<std::int64_t>(bytes)),
      [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (capturing > 0) return cudaErrorStreamCaptureUnsupported;
  if (is_staged(to, from, bytes)) {
    const auto* begin = static_cast<const char*>(from);
    put(legacy(), Touched("cudaMemcpy").writes(to, static_cast<std::int64_t>(bytes)),
        [to, staged = std::vector<char>(begin, begin + bytes)] {
          std::memcpy(to, staged.data(), staged.size());
        });
    return cudaSuccess;
  }
  cudaStreamSynchronize(cudaStreamLegacy);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream, Touched("memset").writes(to, static_cast<std::int64_t>(bytes)),
          [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (!as_said(to, from, bytes, kind)) return cudaErrorInvalidValue;
  const auto size = static_cast<std::int64_t>(bytes);
  enqueue(stream, Touched("copy").reads(from, size).writes(to, size),
          [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  Touched rows("copy of columns");
  for (size_t row = 0; row < height; ++row) {
    rows.reads(static_cast<const char*>(from) + row * from_pitch, static_cast<std::int64_t>(width));
    rows.writes(static_cast<char*>(to) + row * to_pitch, static_cast<std::int64_t>(width));
  }
  enqueue(stream, std::move(rows), [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch,
                  static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  const cudaError_t made = cudaStreamCreateWithFlags(stream, flags);
  if (made == cudaSuccess) (*stream)->priority = priority;
  return made;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  if (stream_fault == StreamFault::Create) return cudaErrorMemoryAllocation;
  *stream = new CUstream_st;
  const std::scoped_lock lock(streams_mutex);
  streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::scoped_lock lock(streams_mutex);
    std::erase(streams, stream);
  }
  stream->stop();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream_fault == StreamFault::Query) return cudaErrorIllegalAddress;
  const std::scoped_lock lock(stream->mutex);
  if (!stream->work.empty() || stream->busy) return cudaErrorNotReady;
  rehearse::cuda_double::host_waited(stream->timeline.record());
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t which) {
  const cudaStream_t stream = which == cudaStreamLegacy ? legacy() : which;
  std::unique_lock lock(stream->mutex);
  stream->changed.wait(lock, [stream] { return stream->work.empty() && !stream->busy; });
  rehearse::cuda_double::host_waited(stream->timeline.record());
  allocated -= pooled.exchange(0);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::scoped_lock all(streams_mutex);
  for (cudaStream_t stream : streams) {
    std::unique_lock lock(stream->mutex);
    stream->changed.wait(lock, [stream] { return stream->work.empty() && !stream->busy; });
    rehearse::cuda_double::host_waited(stream->timeline.record());
  }
  allocated -= pooled.exchange(0);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  const int nth = broken_nth.load();
  const bool planted = nth > 0 && captures_begun++ % nth == 0;
  if (strikes(planted, Fault::Begin)) return cudaErrorStreamCaptureUnsupported;
  stream->capture = std::make_unique<CUgraph_st>();
  stream->capture->planted = planted;
  ++capturing;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      stream->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream->capture == nullptr) return cudaErrorIllegalState;
  const std::unique_ptr<CUgraph_st> held = std::move(stream->capture);
  --capturing;
  if (held->broken || strikes(held->planted, Fault::End)) return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st(*held);
  ++captured;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  if (strikes(graph->planted, Fault::Instantiate)) return cudaErrorMemoryAllocation;
  *made = new CUgraphExec_st{graph->work, graph->planted};
  allocated += kGraph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = graph->work.size();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  allocated -= kGraph;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (strikes(graph->planted, Fault::Launch)) return cudaErrorMemoryAllocation;
  ++launched;
  for (const Captured& piece : graph->work) enqueue(stream, piece.touched, piece.work);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
// Captures of ours join no other stream: an event inside one is a mistake.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->capture != nullptr) return spoil(stream);
  const auto firing = std::make_shared<Firing>();
  event->latest = firing;
  firing->clock = stream->timeline.record();
  enqueue(stream, [firing] {
    {
      const std::scoped_lock lock(firing->mutex);
      firing->fired = true;
      firing->at = std::chrono::steady_clock::now() + spent;
    }
    firing->changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  if (stream->capture != nullptr) return spoil(stream);
  const std::shared_ptr<Firing> firing = event->latest;
  if (firing == nullptr) return cudaSuccess;
  stream->timeline.wait(firing->clock);
  enqueue(stream, [firing] {
    std::unique_lock lock(firing->mutex);
    firing->changed.wait(lock, [&] { return firing->fired; });
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::shared_ptr<Firing> firing = event->latest;
  if (firing == nullptr) return cudaSuccess;
  std::unique_lock lock(firing->mutex);
  firing->changed.wait(lock, [&] { return firing->fired; });
  rehearse::cuda_double::host_waited(firing->clock);
  return cudaSuccess;
}
// What happens to have ended orders nothing: for unordered() only what the host waits for counts.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->latest == nullptr) return cudaSuccess;
  const std::scoped_lock lock(event->latest->mutex);
  return event->latest->fired ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->latest == nullptr || end->latest == nullptr) return cudaErrorInvalidValue;
  *ms = std::chrono::duration<float, std::milli>(end->latest->at - begin->latest->at).count();
  return cudaSuccess;
}

}  // extern "C"
