// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime: streams, events and graphs. host_cuda.hpp lists its guarantees.
#include <cuda_runtime_api.h>

#include "tests/support/fake_cuda/streams.hpp"

using maestro::fake_cuda::answer;
using maestro::fake_cuda::Lock;
using maestro::fake_cuda::push;
using maestro::fake_cuda::runtime;
using maestro::fake_cuda::start_device;

namespace {

cudaError_t create(cudaStream_t* stream, unsigned flags, int priority) {
  start_device();
  const Lock lock(runtime().mutex);
  if (runtime().failure != cudaSuccess) return answer();
  *stream = new CUstream_st;
  static_cast<void>(cudaGetDevice(&(*stream)->device));
  (*stream)->flags = flags;
  (*stream)->priority = priority;
  runtime().streams.insert(*stream);
  return answer();
}

}  // namespace

extern "C" {

// ---- streams ----

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return create(stream, flags, priority);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = runtime().at(stream)->priority;
  return answer();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  start_device();
  const Lock lock(runtime().mutex);
  runtime().run_all(stream);
  runtime().streams.erase(stream);
  delete stream;
  return answer();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  start_device();
  ++runtime().waits;
  const Lock lock(runtime().mutex);
  if (runtime().at(stream)->capture != nullptr) return answer(cudaErrorStreamCaptureUnsupported);
  runtime().run_all(runtime().at(stream));
  return answer();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  start_device();
  const Lock lock(runtime().mutex);
  if (runtime().at(stream)->steps.empty()) return answer();
  runtime().run_one(runtime().at(stream));
  return answer(cudaErrorNotReady);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  const Lock lock(runtime().mutex);
  return push(stream, [=] { function(argument); });
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  start_device();
  if (runtime().failure != cudaSuccess) return answer();
  *event = new CUevent_st;
  return answer();
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  start_device();
  delete event;
  return answer();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (runtime().failure != cudaSuccess) return answer();
  const auto recording = std::make_shared<Recording>(Recording{false, runtime().at(stream)});
  event->latest = recording;
  return push(stream, [recording] { *recording = Recording{true, nullptr}; });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  start_device();
  const Lock lock(runtime().mutex);
  if (runtime().disturbs_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  if (event->latest->done) return answer();
  runtime().run_one(event->latest->stream);
  return answer(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  start_device();
  ++runtime().waits;
  const Lock lock(runtime().mutex);
  runtime().run_until(event->latest);
  return answer();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
  start_device();
  const Lock lock(runtime().mutex);
  if (!first->latest->done || !last->latest->done) return answer(cudaErrorNotReady);
  *milliseconds = 1;  // steps have arbitrary durations
  return answer();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  start_device();
  const Lock lock(runtime().mutex);
  if (runtime().failure != cudaSuccess) return answer();
  const auto recording = event->latest;
  runtime().push(stream, [recording] {
    if (!recording->done) runtime().run_one(recording->stream);
    return recording->done;
  });
  return answer();
}

// ---- graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(runtime().mutex);
  if (stream == nullptr || stream->capture != nullptr) return answer(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_unique<CUgraph_st>();
  stream->capturer = std::this_thread::get_id();
  stream->capture_failed = false;
  return answer();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(runtime().mutex);
  if (stream == nullptr || stream->capture == nullptr) return answer(cudaErrorIllegalState);
  const std::unique_ptr<CUgraph_st> captured = std::move(stream->capture);
  *graph = nullptr;
  if (stream->capture_failed) return answer(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st(*captured);
  return answer();
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  start_device();
  const Lock lock(runtime().mutex);
  const bool capturing = runtime().at(stream)->capture != nullptr;
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return answer();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->steps};
  return answer();
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  runtime().replay(*executable, stream);
  return answer();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return answer();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return answer();
}

}  // extern "C"
