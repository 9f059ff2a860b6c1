// SPDX-License-Identifier: Apache-2.0
// Sends a rank's pieces to other processes: by RMA from their pool's memory, by copies into memory that another process
// shares, or chunk by chunk through pinned memory. Plain class; the actor passes in the messages that end copies and
// writes. No call blocks, and no copy or write ends inside the call that began it.
//
// WP-1 (held buffer): a piece's buffer is held until the last copy or write that reads it has ended.
// WP-2 (chunks): pieces are copied in the order of leave(), into at most `staging_blocks` blocks. A chunk is written as
//       soon as it is copied, while the next chunks are copied; its block is used again after its writes have ended.
// WP-3 (header last): in shared memory the header is written after all rows, and only the header completes the piece
//       (IR-4).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/messages/messages.hpp"
#include "actors/services/write_cookie.hpp"
#include "runtime/core/buffer.hpp"
#include "runtime/device/backend.hpp"
#include "transport/ring/chunk_plan.hpp"
#include "transport/ring/immediate.hpp"
#include "transport/ring/output_link.hpp"
#include "transport/ring/slot_layout.hpp"
#include "transport/transfer_types.hpp"

namespace maestro {

/// A sent piece: handed over, or written and acknowledged.
struct Transfer {
  PieceOut piece;
  StepId step;
  bool remote = false;
  std::chrono::steady_clock::time_point begin;
};

enum class SendMethod : std::uint8_t {
  from_pool,  ///< RMA from the pool's memory
  in_chunks,  ///< chunks in pinned memory
  shared      ///< copies into memory that the receiver shares
};

/// The destination of a link's pieces.
struct PieceTarget {
  ProcessId process;
  RingAddress ring;
  SendMethod method = SendMethod::from_pool;
  SlotMemory place = SlotMemory::host;   ///< memory of the payload that is written; the device's for `shared`
  std::weak_ptr<ImportedMemory> shared;  ///< the ring's payloads in device memory (OM-1), for SendMethod::shared
  std::string name;                      ///< for errors: "teacher.hidden to student.teacher, replica 1"
};

/// The pool that a piece leaves from.
struct PieceSource {
  const Region* region = nullptr;  ///< the pool's region; only for from_pool
  std::size_t row_bytes = 0;
  DType dtype = DType::f32;
  bool host = true;  ///< host memory: the header is made in the buffer (OutgoingPiece::header_offset)
};

struct PieceWriterOptions {
  Epoch epoch;
  ReplicaIndex replica;  ///< the sender
  std::size_t chunk_bytes = 0;
  std::uint32_t client = 0;  ///< client number in the cookies of copies and writes
  Device* device = nullptr;  ///< device that copies; null without a pool in device memory
  std::function<void(ProcessId to, const WriteRequest& request)> write;
  /// Reports the end of a copy; called from any thread, and must only enqueue.
  std::function<void(std::uint64_t cookie, const std::string& failure)> copied;
  std::function<void(const Transfer&)> transferred;  ///< may be empty
};

/// Not thread-safe; belongs to the replica's actor.
class PieceWriter {
 public:
  static constexpr std::size_t staging_blocks = 4;  ///< one to copy to, one to write, two for late acknowledgements
  static constexpr std::size_t header_bytes = sizeof(PieceHeader);

  explicit PieceWriter(PieceWriterOptions options) : options_(std::move(options)) {}
  PieceWriter(const PieceWriter&) = delete;
  PieceWriter& operator=(const PieceWriter&) = delete;

  /// Returns the size of a block for chunks if a piece has at most `largest_piece` bytes.
  [[nodiscard]] std::size_t staging_block_bytes(std::size_t largest_piece) const;
  /// Sets the `staging_blocks` blocks of host memory, and their region, for pieces in device memory. Both outlive the
  /// writer.
  void use_staging(BufferPool* blocks, const Region* region);
  void on_transferred(std::function<void(const Transfer&)> call) { options_.transferred = std::move(call); }

  /// Sends a piece. `target` outlives the transfer.
  void leave(const PieceTarget& target, const PieceSource& source, OutgoingPiece outgoing);
  /// Continues after the end of a copy (PieceWriterOptions::copied). Returns an error that names the target if it
  /// failed.
  Status copied(std::uint64_t cookie, const std::string& failure);
  /// Continues after a write of this rank.
  void write_finished(std::uint64_t cookie);
  /// Adds the times of the pieces sent since the last call, without their waits for credits.
  void take_times(ChannelTimes& sum);

 private:
  struct Piece {  // shared by its copies and writes, which end in any order
    const PieceTarget* target;
    PieceSource source;
    OutgoingPiece outgoing;
    SlotLayout layout;
    Immediate immediate;  // immediate of all its writes
    ChunkPlan chunks;
    Transfer transfer;
    std::size_t next_chunk = 0;   // next chunk to copy
    std::size_t copies_left = 0;  // copies until the buffer is free
    std::size_t writes_left = 1;  // writes until the piece is sent
    [[nodiscard]] std::uint32_t slot() const { return immediate.slot; }
    [[nodiscard]] std::size_t target_byte() const {
      return static_cast<std::size_t>(outgoing.piece.target_row) * source.row_bytes;
    }
  };
  using SharedPiece = std::shared_ptr<Piece>;
  struct Copy {
    SharedPiece piece;
    Buffer block;  // a chunk's block
    Chunk chunk;
  };
  struct Write {
    SharedPiece piece;
    Buffer source;  // the piece's buffer or a block (WP-1)
  };
  struct LocalBytes {
    const Region* region;
    std::size_t offset;
    std::size_t bytes;
  };
  [[nodiscard]] SharedPiece make(const PieceTarget& target, const PieceSource& source, OutgoingPiece outgoing) const;
  [[nodiscard]] PieceHeader header_of(const Piece& piece) const;
  [[nodiscard]] std::uint64_t next_cookie() { return pack_cookie({options_.client, std::nullopt, next_number_++}); }
  void write_from_pool(const SharedPiece& piece);
  void copy_to_shared(const SharedPiece& piece);
  /// Starts copies while blocks are free.
  void advance();
  void copy_chunk(const SharedPiece& piece, Buffer block);
  void write_chunk(const Copy& copied);
  void write_header(const SharedPiece& piece, const Buffer& block);
  /// Target of a copy: a block, or memory that another process shares.
  struct CopyTarget {
    std::byte* to;
    Buffer block;
    std::shared_ptr<ImportedMemory> shared;  // with its owner (OM-1)
  };
  void copy(const SharedPiece& piece, Chunk chunk, CopyTarget target);
  void write(const SharedPiece& piece, const Buffer& source, const LocalBytes& from, const RemoteRegion& to,
             std::size_t to_offset);

  PieceWriterOptions options_;
  std::uint64_t next_number_ = 0;
  BufferPool* blocks_ = nullptr;
  const Region* block_region_ = nullptr;
  std::deque<SharedPiece> headers_;  // pieces that need only a block for their header; served first
  std::deque<SharedPiece> chunked_;  // pieces with chunks still to copy
  std::map<std::uint64_t, Copy> copies_;
  std::map<std::uint64_t, Write> writes_;
  ChannelTimes times_;
};

}  // namespace maestro
