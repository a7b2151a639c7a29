-- name: create_customer
-- Who buys; `orders` numbers a customer's orders in commit order.
CREATE TABLE customer (name text PRIMARY KEY, orders integer NOT NULL DEFAULT 0);

-- name: create_purchase
-- What was bought, with the message that tells of it.
CREATE TABLE purchase (message_id text PRIMARY KEY, customer text NOT NULL, n integer NOT NULL, cents integer NOT NULL);

-- name: add_customer
-- A new customer.
INSERT INTO customer (name) VALUES (%s);

-- name: count_up
-- Take the customer's next number; the row stays locked until the transaction ends.
UPDATE customer SET orders = orders + 1 WHERE name = %s;

-- name: number
-- The number just taken.
SELECT orders FROM customer WHERE name = %s;

-- name: buy
-- The order itself.
INSERT INTO purchase (message_id, customer, n, cents) VALUES (%s, %s, %s, %s);

-- name: purchases
-- Every order that was committed.
SELECT message_id FROM purchase;
