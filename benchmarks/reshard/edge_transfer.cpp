// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/reshard/edge_transfer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "benchmarks/reshard/process_pair.hpp"
#include "benchmarks/reshard/station.hpp"
#include "transport/ring/chunk_plan.hpp"

namespace maestro::bench {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int warmup = 3;
constexpr std::size_t word_bytes = 64;  // the receivers' confirmation of a step

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::size_t bytes_of(const EdgeStep& step) {
  std::size_t bytes = 0;
  for (const PieceOut& piece : step.pieces()) bytes += static_cast<std::size_t>(piece.rows) * step.row_bytes();
  return bytes;
}

/// The times of the repetitions, each followed by a plain copy of as many bytes.
class Stopwatch {
 public:
  explicit Stopwatch(const EdgeStep& step) : from_(bytes_of(step), std::byte{1}), to_(bytes_of(step)) {}

  void note(int repetition, double step_us) {
    const auto start = Clock::now();
    std::memcpy(to_.data(), from_.data(), from_.size());
    asm volatile("" : : "r"(to_.data()) : "memory");  // the copy must happen
    const double copy_us = microseconds_since(start);
    if (repetition < warmup) return;
    steps_.push_back(step_us);
    copies_.push_back(copy_us);
    ratios_.push_back(copy_us / step_us);
  }
  [[nodiscard]] TransferFigures figures() const { return {median(steps_), median(copies_), median(ratios_), 0}; }

 private:
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  std::vector<double> steps_;
  std::vector<double> copies_;
  std::vector<double> ratios_;
};

// Packs data that the processes exchange before they start. Their memory layouts agree, as both are forked.
std::string packed(const std::vector<RemoteRegion>& regions) {
  return {reinterpret_cast<const char*>(regions.data()), regions.size() * sizeof(RemoteRegion)};
}
std::vector<RemoteRegion> unpacked(const std::string& bytes) {
  std::vector<RemoteRegion> regions(bytes.size() / sizeof(RemoteRegion));
  std::memcpy(regions.data(), bytes.data(), bytes.size());
  return regions;
}

/// The process with all sending ranks.
class SenderProcess {
 public:
  SenderProcess(const EdgeStep& step, const std::string& provider, std::size_t chunk_bytes)
      : step_(&step),
        from_(step),
        receivers_(step, chunk_bytes),
        word_(word_bytes),
        station_(provider),
        memory_(station_.register_memory(from_.memory(), from_.memory_bytes())),
        word_region_(station_.register_memory(word_.data(), word_bytes)) {}

  void meet(const Connection& other) {
    other.send(station_.address());
    other.send(packed({word_region_->remote()}));
    station_.connect(other.receive());
    rings_ = unpacked(other.receive());
  }

  /// Sends the step. Returns the microseconds until the receivers' confirmation.
  double send(std::uint64_t repetition) {
    const auto start = Clock::now();
    for (const PlacedPiece& piece : from_.pieces()) send(piece, repetition);
    bool word = false;
    station_.run_until([&] { return word; }, [&](std::uint32_t) { word = true; });
    const double us = microseconds_since(start);
    station_.run_until([this] { return station_.unfinished() == 0; }, [](std::uint32_t) {});
    return us;
  }

 private:
  // Sends a header, then the rows in chunks, like the ports of a section replica.
  void send(const PlacedPiece& placed, std::uint64_t repetition) {
    const PieceOut& piece = placed.piece;
    const std::uint32_t number = ring_of(*step_, piece.receiver, piece.target_rank);
    const InputRingSpec& ring = receivers_.rings()[number]->spec();
    const SlotLayout& layout = receivers_.rings()[number]->layout();
    const std::uint64_t sequence = piece.sequence + repetition * ring.slots;
    const std::uint32_t slot = layout.slot_of(sequence);
    PieceInfo info{ring.epoch,
                   ring.channel.edge,
                   sequence,
                   step_->plan.step,
                   placed.sender,
                   static_cast<std::uint64_t>(piece.target_row),
                   static_cast<std::uint64_t>(piece.rows),
                   static_cast<std::uint32_t>(ring.row_bytes()),
                   ring.dtype};
    const PieceHeader header = make_header(info);
    std::memcpy(placed.buffer.data() + placed.header_offset, &header, sizeof header);
    WriteRequest request;
    request.local = memory_.get();
    request.remote = rings_[number];
    request.immediate = pack({EdgeId(number), slot, wrap_sequence(sequence)});
    const auto post = [&](std::size_t local_offset, std::size_t remote_offset, std::size_t bytes) {
      request.local_offset = placed.buffer.pool_offset() + local_offset;
      request.remote_offset = remote_offset;
      request.bytes = bytes;
      station_.write(request);
    };
    post(placed.header_offset, layout.header_offset(slot, piece.index), sizeof header);
    const std::size_t target = static_cast<std::size_t>(piece.target_row) * ring.row_bytes();
    for (const Chunk chunk : ChunkPlan(info.payload_bytes(), ring.chunk_bytes)) {
      post(placed.offset + chunk.offset, layout.payload_offset(slot, target + chunk.offset), chunk.bytes);
    }
  }

  const EdgeStep* step_;
  SendingEnd from_;
  ReceivingEnd receivers_;  // only for the layout of their rings: untouched memory costs nothing
  AlignedMemory word_;
  Station station_;
  std::unique_ptr<Region> memory_;
  std::unique_ptr<Region> word_region_;
  std::vector<RemoteRegion> rings_;
};

/// Runs the process with all receiving ranks: receives the step `repetitions` times.
void receive(const EdgeStep& step, const std::string& provider, const TransferOptions& options,
             const Connection& other) {
  ReceivingEnd into(step, options.chunk_bytes);
  AlignedMemory word(word_bytes);
  Station station(provider);
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<RemoteRegion> rings;
  for (const auto& ring : into.rings()) {
    regions.push_back(station.register_memory(ring->memory(), ring->memory_bytes()));
    rings.push_back(regions.back()->remote());
  }
  const std::unique_ptr<Region> word_region = station.register_memory(word.data(), word_bytes);
  into.expect(0);
  other.send(station.address());
  other.send(packed(rings));
  station.connect(other.receive());
  const RemoteRegion answer = unpacked(other.receive()).front();
  const auto landed = [&](std::uint32_t immediate) { into.landed(immediate); };
  const auto repetitions = static_cast<std::uint64_t>(warmup + options.repetitions);
  for (std::uint64_t repetition = 0; repetition < repetitions; ++repetition) {
    station.run_until([&] { return into.complete(); }, landed);
    if (repetition == 0) into.check(repetition);
    (void)into.finish(repetition);
    into.expect(repetition + 1);
    WriteRequest request;
    request.local = word_region.get();
    request.bytes = 1;
    request.remote = answer;
    request.immediate = 0;
    station.write(request);
  }
  (void)other.receive();  // waits until the sender has the last confirmation and the connection is unused
}

}  // namespace

TransferFigures in_process(const EdgeStep& step, const TransferOptions& options) {
  const SendingEnd from(step);
  ReceivingEnd into(step, options.chunk_bytes);
  Stopwatch stopwatch(step);
  std::size_t copied = 0;
  for (int repetition = 0; repetition < warmup + options.repetitions; ++repetition) {
    const auto sequence = static_cast<std::uint64_t>(repetition);
    const auto start = Clock::now();
    into.expect(sequence);
    for (const PlacedPiece& piece : from.pieces()) into.handed_over(sequence, piece);
    if (!into.complete()) throw JobError("the step's pieces leave rows without a sender");
    double us = microseconds_since(start);
    if (repetition == 0) into.check(sequence);
    const auto opening = Clock::now();
    copied = into.finish(sequence);
    us += microseconds_since(opening);
    stopwatch.note(repetition, us);
  }
  TransferFigures figures = stopwatch.figures();
  figures.copied_share = static_cast<double>(copied) / static_cast<double>(bytes_of(step));
  return figures;
}

TransferFigures write_between_processes(const EdgeStep& step, const std::string& provider,
                                        const TransferOptions& options) {
  const auto first = [&](const Connection& other) {
    SenderProcess sender(step, provider, options.chunk_bytes);
    sender.meet(other);
    Stopwatch stopwatch(step);
    for (int repetition = 0; repetition < warmup + options.repetitions; ++repetition) {
      stopwatch.note(repetition, sender.send(static_cast<std::uint64_t>(repetition)));
    }
    other.send("done");
    const TransferFigures figures = stopwatch.figures();
    return std::string(reinterpret_cast<const char*>(&figures), sizeof figures);
  };
  const std::string answer =
      run_in_two_processes(first, [&](const Connection& other) { receive(step, provider, options, other); });
  TransferFigures figures;
  std::memcpy(&figures, answer.data(), sizeof figures);
  return figures;
}

}  // namespace maestro::bench
