// SPDX-License-Identifier: Apache-2.0
// Registers the messages with CAF: inspection for those that cross processes, and type ids. Every file that sends or
// handles messages includes this header.
#pragma once

#include "actors/messages/addresses.hpp"
#include "actors/messages/caf_compat.hpp"
#include "actors/messages/messages.hpp"

namespace maestro {

MAESTRO_INSPECT(Channel, x.edge, x.direction)
MAESTRO_INSPECT(SampleRef, x.id, x.tokens, x.patches, x.images, x.index_in_step)
MAESTRO_INSPECT(PieceOut, x.channel, x.receiver, x.sequence, x.index, x.source_row, x.target_row, x.rows, x.source_rank,
                x.target_rank)
MAESTRO_INSPECT(ArrivalPiece, x.rows, x.sender, x.sender_rank)
MAESTRO_INSPECT(ArrivalPlan, x.channel, x.sequence, x.pieces, x.rank)
MAESTRO_INSPECT(MicroBatchPlan, x.section, x.step, x.pass, x.index, x.replica, x.loss_scale, x.samples, x.arrivals,
                x.pieces, x.backward_order, x.backward_after, x.phased, x.group, x.forward_phase, x.backward_phase)
MAESTRO_INSPECT(StepBoundary, x.kind, x.step, x.pass, x.staging, x.active)
MAESTRO_INSPECT(MicroBatchOrder, x.plan)
MAESTRO_INSPECT(PhaseOpen, x.step, x.group, x.phase)
MAESTRO_INSPECT(PhasePassDone, x.step, x.group, x.phase)
MAESTRO_INSPECT(BoundaryOrder, x.mark)
MAESTRO_INSPECT(Metric, x.name, x.sum, x.weight)
MAESTRO_INSPECT(MicroBatchDone, x.section, x.replica, x.step, x.pass, x.index, x.samples, x.metrics, x.forward_ms,
                x.backward_ms, x.age_ms)
MAESTRO_INSPECT(StepDone, x.section, x.replica, x.step, x.pass, x.gradient_norm, x.lr)
MAESTRO_INSPECT(NormReport, x.section, x.replica, x.reporters, x.step, x.sum_of_squares)
MAESTRO_INSPECT(NormTotal, x.step, x.sum_of_squares, x.sum_of_squares_of_section)
MAESTRO_INSPECT(Credit, x.channel, x.receiver, x.layout_rank, x.epoch, x.released)
MAESTRO_INSPECT(ReductionReady, x.kind, x.layout_rank, x.member)
MAESTRO_INSPECT(BatchRequest, x.step, x.pass)
MAESTRO_INSPECT(BatchMetadata, x.step, x.pass, x.samples, x.target_tokens, x.left_out)
MAESTRO_INSPECT(StoredFile, x.path, x.bytes, x.checksum)
MAESTRO_INSPECT(SnapshotWritten, x.section, x.step, x.files)
MAESTRO_INSPECT(CheckpointCommitted, x.step, x.path)
MAESTRO_INSPECT(Failure, x.message)
MAESTRO_INSPECT(TransferBroken, x.message)
MAESTRO_INSPECT(ProcessSummary, x.process, x.max_rss_mb, x.provider, x.bytes, x.writes)
MAESTRO_INSPECT(WaitingFor, x.section, x.replica, x.kind, x.doing, x.step, x.micro_batch, x.sample, x.port, x.peer,
                x.peers, x.events)
MAESTRO_INSPECT(WriteFinished, x.cookie)
MAESTRO_INSPECT(WriteBroken, x.cookie, x.message)
MAESTRO_INSPECT(RingEvent, x.immediate)
MAESTRO_INSPECT(ProcessIdentity, x.pid_namespace, x.pid, x.started)
MAESTRO_INSPECT(RemoteRegion, x.key, x.base, x.bytes)
MAESTRO_INSPECT(RingAddress, x.channel, x.receiver, x.layout_rank, x.ring, x.slots, x.max_pieces, x.payload_bytes,
                x.region, x.device_ring, x.device_memory, x.device_region)
MAESTRO_INSPECT(ReductionAddress, x.parts_ring, x.sums_ring, x.parts, x.gradients, x.group)
MAESTRO_INSPECT(ReplicaAddress, x.section, x.replica, x.process, x.actor, x.rings, x.reductions)
MAESTRO_INSPECT(ProcessJoined, x.process, x.identity, x.host, x.supervisor)
MAESTRO_INSPECT(ProcessInfo, x.process, x.identity, x.host, x.build, x.endpoint, x.actors_host, x.actors_port,
                x.supervisor, x.replicas)
MAESTRO_INSPECT(Directory, x.processes, x.coordinator)
MAESTRO_INSPECT(PeerAddress, x.process, x.host, x.port)
MAESTRO_INSPECT(PeerList, x.all)
MAESTRO_INSPECT(Ping, x.process)
MAESTRO_INSPECT(PeersConnected, x.process)
MAESTRO_INSPECT(Heartbeat, x.process)
MAESTRO_INSPECT(ProcessReady, x.process)

#define MAESTRO_INSPECT_EMPTY(Type)   \
  template <class Inspector>          \
  auto inspect(Inspector& f, Type&) { \
    return inspect_fields(f, #Type);  \
  }
MAESTRO_INSPECT_EMPTY(Begin)
MAESTRO_INSPECT_EMPTY(Interrupt)
MAESTRO_INSPECT_EMPTY(Shutdown)
MAESTRO_INSPECT_EMPTY(Finish)
MAESTRO_INSPECT_EMPTY(AddressRequest)
MAESTRO_INSPECT_EMPTY(StatusRequest)

}  // namespace maestro

CAF_BEGIN_TYPE_ID_BLOCK(maestro, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(maestro, (maestro::ProcessJoined))
CAF_ADD_TYPE_ID(maestro, (maestro::ProcessInfo))
CAF_ADD_TYPE_ID(maestro, (maestro::Directory))
CAF_ADD_TYPE_ID(maestro, (maestro::PeerList))
CAF_ADD_TYPE_ID(maestro, (maestro::Ping))
CAF_ADD_TYPE_ID(maestro, (maestro::PeersConnected))
CAF_ADD_TYPE_ID(maestro, (maestro::ProcessReady))
CAF_ADD_TYPE_ID(maestro, (maestro::Heartbeat))
CAF_ADD_TYPE_ID(maestro, (maestro::Begin))
CAF_ADD_TYPE_ID(maestro, (maestro::MicroBatchOrder))
CAF_ADD_TYPE_ID(maestro, (maestro::BoundaryOrder))
CAF_ADD_TYPE_ID(maestro, (maestro::MicroBatchDone))
CAF_ADD_TYPE_ID(maestro, (maestro::StepDone))
CAF_ADD_TYPE_ID(maestro, (maestro::NormReport))
CAF_ADD_TYPE_ID(maestro, (maestro::NormTotal))
CAF_ADD_TYPE_ID(maestro, (maestro::Credit))
CAF_ADD_TYPE_ID(maestro, (maestro::BatchRequest))
CAF_ADD_TYPE_ID(maestro, (maestro::BatchMetadata))
CAF_ADD_TYPE_ID(maestro, (maestro::SnapshotWritten))
CAF_ADD_TYPE_ID(maestro, (maestro::CheckpointCommitted))
CAF_ADD_TYPE_ID(maestro, (maestro::Failure))
CAF_ADD_TYPE_ID(maestro, (maestro::TransferBroken))
CAF_ADD_TYPE_ID(maestro, (maestro::ReplicaAddress))
CAF_ADD_TYPE_ID(maestro, (maestro::AddressRequest))
CAF_ADD_TYPE_ID(maestro, (maestro::Interrupt))
CAF_ADD_TYPE_ID(maestro, (maestro::Finish))
CAF_ADD_TYPE_ID(maestro, (maestro::Shutdown))
CAF_ADD_TYPE_ID(maestro, (maestro::ProcessSummary))
CAF_ADD_TYPE_ID(maestro, (maestro::StatusRequest))
CAF_ADD_TYPE_ID(maestro, (maestro::WaitingFor))
CAF_ADD_TYPE_ID(maestro, (maestro::RingEvent))
CAF_ADD_TYPE_ID(maestro, (maestro::WriteFinished))
CAF_ADD_TYPE_ID(maestro, (maestro::WriteBroken))
CAF_ADD_TYPE_ID(maestro, (maestro::PhaseOpen))
CAF_ADD_TYPE_ID(maestro, (maestro::PhasePassDone))
CAF_ADD_TYPE_ID(maestro, (maestro::ReductionReady))
CAF_END_TYPE_ID_BLOCK(maestro)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PlanStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::StepPlanned)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PieceHandOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::ShardHandOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::ShardRead)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::StartTimeout)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::ChildEnded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::CopyFinished)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::BufferFree)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::WorkDone)
