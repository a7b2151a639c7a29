-- name: create_customer
-- Who buys; `orders` numbers a customer's orders in commit order.
CREATE TABLE customer (name TEXT PRIMARY KEY NOT NULL, orders INTEGER NOT NULL DEFAULT 0);

-- name: create_purchase
-- What was bought, with the message that tells of it.
CREATE TABLE purchase (message_id TEXT PRIMARY KEY NOT NULL, customer TEXT NOT NULL, n INTEGER NOT NULL, cents INTEGER NOT NULL);

-- name: add_customer
-- A new customer.
INSERT INTO customer (name) VALUES (?);

-- name: count_up
-- Take the customer's next number; the row stays locked until the transaction ends.
UPDATE customer SET orders = orders + 1 WHERE name = ?;

-- name: number
-- The number just taken.
SELECT orders FROM customer WHERE name = ?;

-- name: buy
-- The order itself.
INSERT INTO purchase (message_id, customer, n, cents) VALUES (?, ?, ?, ?);

-- name: purchases
-- Every order that was committed.
SELECT message_id FROM purchase;
