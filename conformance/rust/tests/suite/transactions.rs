//! Transactions over several partition keys: a preview of the SDK that this server refuses, as the service's own emulators do.

use azure_data_cosmos::clients::{DistributedReadTransaction, DistributedWriteTransaction};
use azure_data_cosmos::models::{PatchInstructions, PatchOperation};
use serde_json::json;

use crate::server::{USUAL, connect, plain_container, status};

#[tokio::test]
async fn writes_over_several_partition_keys_are_refused_as_a_whole() {
    let client = connect(USUAL).await;
    let container = plain_container(&client).await;
    let patch = PatchInstructions::new().with_operation(PatchOperation::set("/n", json!(1)));
    let transaction = DistributedWriteTransaction::new()
        .create_item(&container, "a", "1", json!({"id": "1", "pk": "a"}), None)
        .and_then(|all| all.upsert_item(&container, "b", "2", json!({"id": "2", "pk": "b"}), None))
        .and_then(|all| all.replace_item(&container, "c", "3", json!({"id": "3", "pk": "c"}), None))
        .and_then(|all| all.patch_item(&container, "d", "4", patch, None))
        .expect("a transaction")
        .delete_item(&container, "e", "5", None);
    let answer = client.commit_distributed_write(transaction).await.expect("an answer");
    assert!(!answer.is_success_status_code() && !answer.is_retriable());
    assert_eq!(u16::from(answer.status()), 400, "{:?}", answer.error_message());
    assert_eq!(status(container.read_item("a", "1", None).await), 404);
    assert_eq!(status(container.read_item("b", "2", None).await), 404);
}

#[tokio::test]
async fn reads_over_several_partition_keys_are_refused() {
    let client = connect(USUAL).await;
    let container = plain_container(&client).await;
    let transaction = DistributedReadTransaction::new()
        .read_item(&container, "a", "1", None)
        .read_item(&container, "b", "2", None);
    let answer = client.execute_distributed_read(transaction).await.expect("an answer");
    assert_eq!(u16::from(answer.status()), 400, "{:?}", answer.error_message());
}
