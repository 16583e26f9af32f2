// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that exec/cuda calls: devices, streams, events, graphs.
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

#include "tests/cuda_double/cudart_double.h"
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
using rehearse::cuda_double::StreamFault;
std::atomic<StreamFault> stream_fault{StreamFault::None};
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
thread_local int captures = 0;

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

}  // namespace

namespace rehearse::cuda_double {

cudaError_t no_device() {
  // of the command in a test: what a driver that is too old says
  static const bool fails = std::getenv("CUDA_DOUBLE_FAILS") != nullptr;
  return devices.load() > 0 && !fails ? cudaSuccess : cudaErrorInsufficientDriver;
}
bool is_capturing() {
  return captures > 0;
}

int put(cudaStream_t stream, Touched touched, std::function<void()> work) {
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

void set_devices(int count) {
  devices = count;
}

void set_driver(int version) {
  driver_version = version;
}

void set_shared_bytes(std::size_t bytes) {
  shared_bytes = bytes;
}

// What cudaStreamLegacy stands for.
cudaStream_t legacy() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    cudaStreamCreateWithFlags(&made, cudaStreamDefault);
    return made;
  }();
  return stream;
}

}  // namespace rehearse::cuda_double

using rehearse::cuda_double::enqueue;
using rehearse::cuda_double::legacy;
using rehearse::cuda_double::no_device;
using Fault = rehearse::cuda_double::CaptureFault;

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
  rehearse::cuda_double::trim_pool();
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::scoped_lock all(streams_mutex);
  for (cudaStream_t stream : streams) {
    std::unique_lock lock(stream->mutex);
    stream->changed.wait(lock, [stream] { return stream->work.empty() && !stream->busy; });
    rehearse::cuda_double::host_waited(stream->timeline.record());
  }
  rehearse::cuda_double::trim_pool();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  const int nth = broken_nth.load();
  const bool planted = nth > 0 && captures_begun++ % nth == 0;
  if (strikes(planted, Fault::Begin)) return cudaErrorStreamCaptureUnsupported;
  stream->capture = std::make_unique<CUgraph_st>();
  stream->capture->planted = planted;
  ++captures;
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
  --captures;
  if (held->broken || strikes(held->planted, Fault::End)) return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st(*held);
  ++captured;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  if (strikes(graph->planted, Fault::Instantiate)) return cudaErrorMemoryAllocation;
  *made = new CUgraphExec_st{graph->work, graph->planted};
  rehearse::cuda_double::count_allocated(kGraph);
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
  rehearse::cuda_double::count_freed(kGraph);
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
