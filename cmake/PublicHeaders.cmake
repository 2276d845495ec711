# The library's public interface: what is installed, and nothing else. A header here includes only headers of this
# list and those of other libraries (tests/tidy watches it), so that no header of the inside gets a user.
set(MW_PUBLIC_HEADERS
    actor/actor.h
    actor/codec.h
    actor/registry.h
    actor/reply.h
    actor/rows.h
    base/check.h
    base/id_vector.h
    base/ids.h
    base/result.h
    base/status.h
    client/balance.h
    client/client.h
    client/data_files.h
    client/evaluation.h
    client/experts.h
    client/layers.h
    client/program.h
    client/session.h
    client/trainer.h
    data/check_contents.h
    data/describe.h
    ir/attrs.h
    ir/autodiff.h
    ir/builder.h
    ir/checkpoint_spec.h
    ir/data_spec.h
    ir/dtype.h
    ir/element.h
    ir/fault_tolerance.h
    ir/queue_spec.h
    ir/graph.h
    ir/job.h
    ir/op.h
    ir/op_list.h
    models/gpt2.h
    models/latent_attention.h
    models/llama.h
    models/registry.h
    proto/actor_ref.h
    proto/job_description.h
    proto/views.h
    worker/main.h
)
# For clients in other languages.
set(MW_PUBLIC_PROTOS proto/meshwright.proto)
